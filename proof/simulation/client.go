package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/relied"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A process is one Client, with links of its own to all nodes.
type process struct {
	name   string
	h      *History
	client *locker.Client
	ctx    context.Context // ends when the process is killed
	cancel context.CancelFunc
	clock  *wallclock.Clock // nil: it never jumps
	links  []*link

	asked sync.WaitGroup // the calls under way

	mu        sync.Mutex
	dead      bool
	positions map[string]int // the last known position in the queue of each key
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// begin is for a call that begins. It is false if the process is dead; otherwise the call ends with
// asked.Done.
func (p *process) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.dead {
		p.asked.Add(1)
	}
	return !p.dead
}

// end makes the process send nothing more, and waits for its calls under way.
func (p *process) end() {
	p.stop()
	p.asked.Wait()
}

func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
}

// kill ends the process: it sends nothing more, and its workers hold nothing.
func (p *process) kill() {
	p.stop()
	add(p.h, &p.h.Deaths, Death{At: p.h.now(), Client: p.name})
	for _, l := range p.links {
		if l.to.counts { // the connection breaks
			time.AfterFunc(l.dice("death").between(quickest, quick), func() { l.to.hangUp(p) })
		}
	}
	p.cancel()
}

// notePosition records the position in err, as a line of the Client does.
func (p *process) notePosition(key string, err error) {
	position := 0
	if held := (*locker.HeldError)(nil); errors.As(err, &held) {
		position = held.Position
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.positions == nil {
		p.positions = map[string]int{}
	}
	p.positions[key] = position
}

func (p *process) position(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.positions[key]
}

// cutOff keeps back all messages to and from the process.
func (p *process) cutOff(d time.Duration) {
	for _, l := range p.links {
		l.cutOff(d, true, true)
	}
	p.struck(Stroke{What: fmt.Sprintf("is cut off for %v", d)}, d)
}

// cutOffFrom keeps back all messages to and from one node.
func (p *process) cutOffFrom(l *link, d time.Duration) {
	l.cutOff(d, true, true)
	p.struck(Stroke{Node: l.to.number, What: fmt.Sprintf("is cut off from node %d for %v", l.to.number, d)}, d)
}

// cutOffOneWay keeps back all messages from the process, if hears, or all to it.
func (p *process) cutOffOneWay(d time.Duration, hears bool) {
	for _, l := range p.links {
		l.cutOff(d, hears, !hears)
	}
	what := "receives nothing"
	if hears {
		what = "reaches nobody"
	}
	p.struck(Stroke{What: fmt.Sprintf("%s for %v", what, d)}, d)
}

func (p *process) struck(s Stroke, d time.Duration) {
	s.At, s.Client = p.h.now(), p.name
	s.Ends = s.At + d
	add(p.h, &p.h.Strokes, s)
}

// jump moves the wall clock of the process.
func (p *process) jump(by time.Duration) {
	p.clock.Jump(by)
	add(p.h, &p.h.Jumps, Jump{At: p.h.now(), Client: p.name, By: by})
}

// A caller is the worker that asks for a lock. The ctx carries it to the messages and cleanups.
type caller struct {
	worker string
	waits  bool
}

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// recorder records the calls of a strategy.
type recorder struct {
	locker.Locker
	process *process
}

// WallClock returns the wall clock for the Client above.
func (r recorder) WallClock() *wallclock.Clock { return r.process.clock }

func (r recorder) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	return r.record(ctx, req, r.Locker.Acquire)
}

func (r recorder) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	return r.record(ctx, req, func(ctx context.Context, req contract.Request) (contract.Lease, error) {
		return r.Locker.Transfer(ctx, from, req)
	})
}

func (r recorder) record(
	ctx context.Context, req contract.Request, ask func(context.Context, contract.Request) (contract.Lease, error),
) (contract.Lease, error) {
	h, c := r.process.h, callerOf(ctx)
	a := &Attempt{
		Client: r.process.name, Worker: c.worker, Waits: c.waits, Key: req.Key, Token: h.nameNew(req.Token, c.worker), Owner: req.Owner,
		TTL: req.TTL, Began: h.now(), Answered: Never, Outcome: Pending,
	}
	add(h, &h.Attempts, a)
	lease, err := ask(ctx, req)
	if c.waits && ctx.Err() == nil { // the line hears nothing of an attempt that it has left
		r.process.notePosition(req.Key, err)
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
		return Held
	}
	return Unknown
}

func (r recorder) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	h := r.process.h
	e := &Extension{Token: h.name(lease.Token), TTL: ttl, Began: h.now(), Answered: Never, Before: h.since(lease.Expires)}
	add(h, &h.Extensions, e)
	extended, err := r.Locker.Extend(ctx, lease, ttl)
	h.note(func() {
		e.Answered, e.Done, e.After, e.Says = h.now(), err == nil, h.since(extended.Expires), verdict(err)
		if d := relied.Of(ctx, ttl); d < ttl { // the rest is for a minimum hold: the holder is not told of it
			e.After = min(e.After, max(e.Before, leaseOf(e.Began, d)))
		}
		// The lease has ended, even if the error names only the end of the ctx.
		if err != nil && e.Answered >= e.Before {
			e.Says = verdict(locker.ErrLost)
		}
	})
	return extended, err
}

// leaseOf is the function lease, where a variable has its name.
func leaseOf(t1, ttl time.Duration) time.Duration { return lease(t1, ttl) }

// Release passes a lease that ends a few nanoseconds earlier. A strategy that waits for this end
// would otherwise stop at the instant at which the Client stops, and either might come first.
func (r recorder) Release(ctx context.Context, lease contract.Lease) error {
	h := r.process.h
	if end, ends := ctx.Deadline(); ctx.Err() != nil || ends && !time.Now().Before(end) {
		// nothing would be sent, whether or not the timer of the ctx has fired
		return context.DeadlineExceeded
	}
	if r.process.isDead() { // it sends nothing; all its calls end at one instant, in no order
		return r.Locker.Release(ctx, lease)
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

// anotherMoment delays the answer of a release. The end of a lease can begin both a cleanup and the
// attempt of the next waiter in line, and both may end after the same time.
const anotherMoment = 11 * time.Nanosecond

// verdict returns the kind of err in one word. Where two things fall on one instant, such as the
// end of a ctx and of a lease, more would depend on the order of goroutines. The messages show the
// rest.
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

// text returns the text of an error of a store, without how a ctx ended.
func text(err error) string { return over.Replace(err.Error()) }

const ctxIsOver = "ctx is over"

var over = strings.NewReplacer(context.Canceled.Error(), ctxIsOver, context.DeadlineExceeded.Error(), ctxIsOver)
