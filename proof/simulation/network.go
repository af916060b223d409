package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
)

// weather is how the network treats messages. All other fields are probabilities.
type weather struct {
	far       bool    // every message takes long
	lost      float64 // the request is not carried out
	replyLost float64 // it is carried out and not answered
	reset     float64 // of one of these two: the caller learns at once that the connection broke
	doubled   float64 // the request is carried out twice, the second time much later
	slow      float64 // it takes about as long as a short lease
	late      float64 // it takes longer than the caller waits

	// Of a wake to one waiter.
	wakeLost    float64
	wakeLate    float64 // it comes after the reservation has ended, mostly
	wakeDoubled float64 // it comes twice
}

// The times of messages.
const (
	quickest, quick = 50 * time.Microsecond, 2 * time.Millisecond
	nearest, far    = 105 * time.Millisecond, 150 * time.Millisecond // a round trip is longer than a short reservation
	slowest         = 450 * time.Millisecond
	latest          = 3 * time.Second
	reaction        = 20 * time.Microsecond // of a client library to the end of a ctx
)

// fate is what happens to one message. It is drawn when the message is sent.
type fate struct {
	copies    []trip
	replyLost bool
	reset     time.Duration // until the caller learns that the connection broke; Never: it does not
	reaction  time.Duration
	trouble   string
}

// trip is how long one copy takes to the node and back.
type trip struct{ there, back time.Duration }

// trip draws how long a message takes that nothing happens to.
func (w weather) trip(d dice) time.Duration {
	if w.far {
		return d.between(nearest, far)
	}
	return d.between(quickest, quick)
}

func (w weather) draw(d dice) fate {
	f := fate{reset: Never, reaction: d.between(1, reaction)}
	var trouble []string
	delay := func(which string) time.Duration {
		switch p := d.Float64(); {
		case p < w.late:
			trouble = append(trouble, "late "+which)
			return d.between(slowest, latest)
		case p < w.late+w.slow:
			trouble = append(trouble, "slow "+which)
			return d.between(5*time.Millisecond, slowest)
		}
		return w.trip(d)
	}
	f.copies = []trip{{delay("request"), delay("reply")}}
	switch p := d.Float64(); {
	case p < w.lost:
		f.copies = nil
		trouble = append(trouble, "request lost")
	case p < w.lost+w.replyLost:
		f.replyLost = true
		trouble = append(trouble, "reply lost")
	case p < w.lost+w.replyLost+w.doubled:
		f.copies = append(f.copies, trip{f.copies[0].there + d.between(quick, latest), d.between(quickest, quick)})
		trouble = append(trouble, "doubled")
	}
	if (f.copies == nil || f.replyLost) && d.chance(w.reset) {
		f.reset = d.between(quickest, 2*quick)
		trouble = append(trouble, "reset")
	}
	f.trouble = strings.Join(trouble, ", ")
	return f
}

// A link is the connection of a process to a node, with its client library. It is all kinds of
// stores at once: see stores.go.
type link struct {
	h       *History
	from    *process
	to      *node
	weather weather
	// the library ignores the ctx, as go-redis without ContextTimeoutEnabled
	deaf     bool
	patience time.Duration // it waits so long for a reply
	// what a defect sends in place of a ttl; nil: no defect
	lasting func(ttl time.Duration) time.Duration

	mu          sync.Mutex
	serials     map[string]int   // of equal messages
	turns       map[string]*turn // by waiter
	there, back time.Time        // no message arrives at the node, or at the process, before
}

// cutOff keeps back messages for d: those to the node, those from it, or both.
func (l *link) cutOff(d time.Duration, there, back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := time.Now().Add(d)
	if there {
		l.there = until
	}
	if back {
		l.back = until
	}
}

// cutOffFor returns for how long messages to the node are still kept back, and those from it.
func (l *link) cutOffFor() (there, back time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.there), 0), max(time.Until(l.back), 0)
}

// WallClock returns the wall clock of the process, for stamps.
func (l *link) WallClock() *wallclock.Clock { return l.from.clock }

// answer is the answer of a node to a message.
type answer struct {
	result
	ok   bool
	err  error
	left time.Duration
	text string
}

var (
	errTimeout = errors.New("i/o timeout")
	errDead    = errors.New("this process is dead")
)

// ask sends a message and waits for the answer.
func (l *link) ask(ctx context.Context, m Message, do func(commands) answer) answer {
	if err := ctx.Err(); err != nil {
		return answer{err: err}
	}
	if !l.from.begin() {
		return answer{err: errDead}
	}
	defer l.from.asked.Done()
	f := l.send(ctx, &m)
	replies := make(chan answer, len(f.copies)+1)
	life := l.to.connection()
	hold, _ := l.cutOffFor()
	for _, trip := range f.copies {
		time.AfterFunc(hold+trip.there, func() {
			l.to.arrive(&m, life, do, func(a answer) {
				if !f.replyLost {
					time.AfterFunc(trip.back, func() { l.deliver(a, trip, replies) })
				}
			})
		})
	}
	if f.reset != Never {
		time.AfterFunc(f.reset, func() { replies <- answer{err: errBroken} })
	}
	a := l.await(ctx, f, replies)
	if errors.Is(a.err, errDown) && len(f.copies) > 1 {
		a.err = errBroken // the other copy may still be carried out
	}
	l.h.note(func() {
		m.Answered, m.Kind, m.Reply, m.Fence, m.Position, m.Left = l.h.now(), a.kind(), a.String(), a.Fence, a.Position, a.Left
	})
	return a
}

// deliver brings an answer to the process as soon as that is within reach.
func (l *link) deliver(a answer, trip trip, replies chan<- answer) {
	if _, cutOff := l.cutOffFor(); cutOff > 0 {
		time.AfterFunc(cutOff+trip.back, func() { l.deliver(a, trip, replies) })
		return
	}
	replies <- a
}

func (l *link) await(ctx context.Context, f fate, replies <-chan answer) answer {
	done := ctx.Done()
	if l.deaf {
		done = nil
	}
	timer := time.NewTimer(l.patience + f.reaction)
	defer timer.Stop()
	select {
	case a := <-replies:
		return a
	case <-timer.C:
		return answer{err: errTimeout}
	case <-done:
	}
	time.Sleep(f.reaction)
	return answer{err: ctx.Err()}
}

// send records the message and draws its fate. The draw depends on the sender and on the number of
// equal messages before it, so the order of messages that are sent at one instant does not matter.
func (l *link) send(ctx context.Context, m *Message) fate {
	m.Client, m.Node, m.Sent, m.Answered = l.from.name, l.to.number, l.h.now(), Never
	if c := callerOf(ctx); c != nil {
		m.Worker = c.worker
	}
	m.Token, m.Waiter = l.h.name(m.Token), l.h.name(m.Waiter)
	d := l.dice(m.Worker, m.Op, m.Key, m.Token+m.Waiter, l.until(ctx))
	f := l.weather.draw(d)
	m.Trouble = f.trouble
	add(l.h, &l.h.Messages, m)
	return f
}

// until distinguishes the call of a cleanup from another equal one at the same instant.
func (l *link) until(ctx context.Context) string {
	deadline, _ := ctx.Deadline()
	return l.h.since(deadline).String()
}

func (l *link) dice(about ...string) dice {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.serials == nil {
		l.serials = map[string]int{}
	}
	what := strings.Join(about, " ")
	l.serials[what]++
	return throwFor(l.h.Seed, "message", l.from.name, strconv.Itoa(l.to.number), what, strconv.Itoa(l.serials[what]))
}

// Watch subscribes, and sends the wakes over the network.
func (l *link) Watch(ctx context.Context, key string, wake func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// The draw depends on when the watch begins, not on the number of watches before it: whether a
	// watch that ends as it begins comes here depends on the order of goroutines.
	d := l.dice("watch", key, l.h.now().String())
	time.Sleep(l.weather.trip(d))
	since := l.h.now().String()
	l.to.watch(ctx, key, func() {
		d := l.dice("wake", key, since)
		if d.chance(l.weather.wakeLost) {
			return
		}
		time.AfterFunc(l.weather.trip(d), func() {
			if ctx.Err() == nil && !l.from.isDead() {
				wake()
			}
		})
	})
	return nil
}

func (a answer) kind() Reply {
	switch {
	case a.err != nil:
		return Fails
	case a.ok:
		return Yes
	}
	return No
}

func (a answer) String() string {
	switch {
	case a.err != nil:
		return text(a.err)
	case a.ok && a.Fence > 0:
		return fmt.Sprintf("yes, number %d", a.Fence)
	case a.ok:
		return "yes" + a.text
	case a.Left > 0 && a.Position > 0:
		return fmt.Sprintf("no, for another %v, position %d", a.Left, a.Position)
	case a.Left > 0:
		return fmt.Sprintf("no, for another %v", a.Left)
	}
	return "no" + a.text
}
