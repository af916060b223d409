package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
)

// A process is one Client, with links of its own to all nodes.
type process struct {
	name   string
	h      *History
	client *locker.Client
	ctx    context.Context // ends when the process is killed
	cancel context.CancelFunc
	clock  *wallclock.Clock // nil: it is never set
	links  []*link

	mu     sync.Mutex
	dead   bool
	places map[string]int // in queues, by key: what it was told last
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill ends the process: nothing leaves it from now on, and nobody in it holds anything.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	add(p.h, &p.h.Deaths, Death{At: p.h.now(), Client: p.name})
	for _, l := range p.links {
		if l.to.counts { // the connection breaks
			time.AfterFunc(l.dice("death").between(quickest, quick), func() { l.to.hangUp(p) })
		}
	}
	p.cancel()
}

// told keeps what a line of the Client keeps as well.
func (p *process) told(key string, err error) {
	place := 0
	if held := (*locker.HeldError)(nil); errors.As(err, &held) {
		place = held.Position
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil {
		p.places = map[string]int{}
	}
	p.places[key] = place
}

func (p *process) place(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places[key]
}

// cutOff keeps the messages of the process back, both ways.
func (p *process) cutOff(d time.Duration) {
	for _, l := range p.links {
		l.cutOff(d, true, true)
	}
	p.struck(Stroke{What: fmt.Sprintf("is cut off for %v", d)}, d)
}

// cutOffFrom keeps back its messages to one node and from it.
func (p *process) cutOffFrom(l *link, d time.Duration) {
	l.cutOff(d, true, true)
	p.struck(Stroke{Node: l.to.number, What: fmt.Sprintf("is cut off from node %d for %v", l.to.number, d)}, d)
}

// cutOffOneWay keeps back what comes to the process, or what it sends.
func (p *process) cutOffOneWay(d time.Duration, hears bool) {
	for _, l := range p.links {
		l.cutOff(d, hears, !hears)
	}
	what := "hears nothing"
	if hears {
		what = "is not heard"
	}
	p.struck(Stroke{What: fmt.Sprintf("%s for %v", what, d)}, d)
}

func (p *process) struck(s Stroke, d time.Duration) {
	s.At, s.Client = p.h.now(), p.name
	s.Ends = s.At + d
	add(p.h, &p.h.Strokes, s)
}

// jump sets the wall clock of the process.
func (p *process) jump(by time.Duration) {
	p.clock.Jump(by)
	add(p.h, &p.h.Jumps, Jump{At: p.h.now(), Client: p.name, By: by})
}

// A caller is who asks for a lock; the ctx tells, as far as the messages and in clean-ups as well.
type caller struct {
	worker string
	waits  bool
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// recorder writes down what goes in and out of a strategy.
type recorder struct {
	locker.Locker
	process *process
}

// WallClock is that of the Client on top.
func (r recorder) WallClock() *wallclock.Clock { return r.process.clock }

func (r recorder) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	h, c := r.process.h, callerOf(ctx)
	a := &Attempt{
		Client: r.process.name, Worker: c.worker, Waits: c.waits, Key: req.Key, Token: h.nameNew(req.Token, c.worker), Owner: req.Owner,
		TTL: req.TTL, Began: h.now(), Answered: Never, Outcome: Pending,
	}
	add(h, &h.Attempts, a)
	req.Free = req.Waiter != "" && throwFor(h.Seed, "hint", a.Token).chance(0.5) // it may be wrong
	lease, err := r.Locker.Acquire(ctx, req)
	if c.waits {
		r.process.told(req.Key, err)
	}
	h.note(func() {
		a.Answered = h.now()
		a.Outcome = outcome(err)
		if a.Outcome == Granted {
			a.T1, a.Expires, a.Fence = h.since(lease.Granted), h.since(lease.Expires), lease.Fence
			a.Monotonic = lease.Expires != lease.Expires.Round(0)
		}
	})
	return lease, err
}

func outcome(err error) Outcome {
	switch {
	case err == nil:
		return Granted
	case errors.Is(err, locker.ErrHeld):
		return Refused
	}
	return Unknown
}

func (r recorder) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	h := r.process.h
	e := &Extension{Token: h.name(lease.Token), TTL: ttl, Began: h.now(), Answered: Never, Before: h.since(lease.Expires)}
	add(h, &h.Extensions, e)
	extended, err := r.Locker.Extend(ctx, lease, ttl)
	h.note(func() {
		e.Answered, e.Done, e.After, e.Says = h.now(), err == nil, h.since(extended.Expires), verdict(err)
		// The lease is over, also if the error names only the end of the ctx.
		if err != nil && e.Answered >= e.Before {
			e.Says = verdict(locker.ErrLost)
		}
	})
	return extended, err
}

// Release is given a lease that ends a few nanoseconds earlier, so that a strategy that waits for its end does not give up at
// the very instant at which the Client does: then either might come first.
func (r recorder) Release(ctx context.Context, lease locker.Lease) error {
	h := r.process.h
	if end, ends := ctx.Deadline(); ctx.Err() != nil || ends && !time.Now().Before(end) {
		return context.DeadlineExceeded // whether or not the timer of the ctx came first; nothing would be sent
	}
	if !lease.Expires.IsZero() {
		lease.Expires = lease.Expires.Add(-aMoment)
	}
	rel := &Release{Token: h.name(lease.Token), Sent: h.now(), Answered: Never}
	add(h, &h.Releases, rel)
	err := r.Locker.Release(ctx, lease)
	time.Sleep(anotherMoment)
	h.note(func() { rel.Answered, rel.Says = h.now(), verdict(err) })
	return err
}

const aMoment = 7 * time.Nanosecond

// anotherMoment later is a release answered, since the end of a lease can begin both a release of what may be left and the attempt
// of the next in line, and both may be given up after the same time.
const anotherMoment = 11 * time.Nanosecond

// verdict is what err says in a word, and no more: where two things fall on one instant, such as the end of a ctx and of a
// lease, more would depend on which goroutine comes first. The messages tell the rest.
func verdict(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, locker.ErrLost):
		return "lost"
	case errors.Is(err, locker.ErrReleased):
		return "released"
	case errors.Is(err, locker.ErrHeld):
		return "held"
	}
	return "unknown"
}

// text is what an error of a store says, but not how a ctx ended.
func text(err error) string { return over.Replace(err.Error()) }

const ctxIsOver = "ctx is over"

var over = strings.NewReplacer(context.Canceled.Error(), ctxIsOver, context.DeadlineExceeded.Error(), ctxIsOver)
