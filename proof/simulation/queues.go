package simulation

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A link has queues as package redisstore has them. An answer gives a position, a wake is one
// message to one waiter, and a waiter leaves the queue with a message of its own. Each of the three
// may be lost.

var _ backends.QueuedStore = (*link)(nil)

// A turn is a waiter of a process that the node can wake.
type turn struct {
	link              *link
	ctx               context.Context // of its watch
	key, waiter, name string
	wake              func()
	asked             atomic.Bool // it may have a position

	stop context.CancelFunc // makes the node forget it; guarded by the mutex of the node
}

// SetNXQueued is SetNX for a caller without a waiter that does not ask in order, as in package
// redisstore.
func (l *link) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (result, error) {
	if t.Waiter == "" && !t.InOrder {
		return l.SetNX(ctx, key, value, ttl)
	}
	return l.setInTurn(ctx, Message{Op: "SetNXQueued", Key: key, Token: value, TTL: ttl}, t, l.SetNX, commands.SetNXQueued)
}

// SetNXNumbered is SetNXQueued with a number for the grant.
func (l *link) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (result, error) {
	return l.setInTurn(ctx, Message{Op: "SetNXNumbered", Key: key, Token: value, TTL: ttl}, t, l.numberIfFree, commands.SetNXNumbered)
}

func (l *link) numberIfFree(ctx context.Context, key, value string, ttl time.Duration) (result, error) {
	ttl = l.ttl(ttl)
	a := l.ask(ctx, Message{Op: "SetNXNumbered", Key: key, Token: value, TTL: ttl}, func(c commands) answer {
		return granted(c.SetNXNumbered(at, key, value, ttl, backends.Turn{}))
	})
	return a.result, a.err
}

// setInTurn asks in the queue. At random it takes the key to be free, rightly or not, and tries ifFree
// first. Package redisstore does so after a release that found the queue empty.
func (l *link) setInTurn(
	ctx context.Context, m Message, t backends.Turn,
	ifFree func(ctx context.Context, key, value string, ttl time.Duration) (result, error),
	inTurn func(c commands, ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (result, error),
) (result, error) {
	mine := l.turnOf(t.Waiter)
	free := throwFor(l.h.Seed, "hint", l.h.name(m.Token)).chance(0.5)
	if free && !t.InOrder && mine != nil && !mine.asked.Load() {
		if r, err := ifFree(ctx, m.Key, m.Token, m.TTL); r.OK || err != nil {
			return r, err
		}
	}
	if mine != nil {
		mine.asked.Store(true)
	}
	m.Waiter, m.TTL, m.RoundTrip = t.Waiter, l.ttl(m.TTL), t.RoundTrip
	a := l.ask(ctx, m, func(c commands) answer { return granted(inTurn(c, at, m.Key, m.Token, m.TTL, t)) })
	l.asked(mine, a)
	return a.result, a.err
}

// asked notes the answer to an attempt of a waiter.
func (l *link) asked(mine *turn, a answer) {
	switch {
	case mine == nil:
	case a.ok: // it has no position any more
		mine.asked.Store(false)
	case mine.ctx.Err() != nil: // its request to leave the queue may have arrived before this attempt
		go mine.quit()
	}
}

// WatchQueued subscribes the waiter to its wakes.
func (l *link) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &turn{link: l, ctx: ctx, key: key, waiter: waiter, name: l.h.nameNew(waiter, l.from.name+"~"+key), wake: wake}
	there, back := l.cutOffFor()
	time.Sleep(max(there, back) + l.weather.trip(l.dice("watch", t.name)))
	if l.from.isDead() {
		return errDead
	}
	l.mu.Lock()
	if l.turns == nil {
		l.turns = map[string]*turn{}
	}
	l.turns[waiter] = t
	l.mu.Unlock()
	l.to.register(t)
	context.AfterFunc(ctx, func() {
		if t.asked.Load() {
			t.quit()
		}
	})
	return nil
}

func (l *link) turnOf(waiter string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.turns[waiter]
}

// quitLimit is the same as in package redisstore.
const quitLimit = 5 * time.Second

// quit leaves the queue. It is not repeated.
func (t *turn) quit() {
	ctx, cancel := context.WithTimeout(context.Background(), quitLimit)
	defer cancel()
	t.link.ask(ctx, Message{Op: quits, Key: t.key, Waiter: t.waiter, turn: t}, nil)
}

const quits = "Quit"

// call sends the wake, which has no answer.
func (t *turn) call() {
	l := t.link
	trips, trouble := l.weather.wake(l.dice("turn", t.name))
	w := &Wake{Node: l.to.number, Key: t.key, Waiter: t.name, Sent: l.h.now(), Trouble: trouble}
	add(l.h, &l.h.Wakes, w)
	for _, trip := range trips {
		time.AfterFunc(trip, func() { t.hear(w, trip) })
	}
}

// hear runs in the process. A waiter whose call has ended leaves the queue.
func (t *turn) hear(w *Wake, trip time.Duration) {
	if _, cutOff := t.link.cutOffFor(); cutOff > 0 {
		time.AfterFunc(cutOff+trip, func() { t.hear(w, trip) })
		return
	}
	if t.link.from.isDead() {
		return
	}
	t.link.h.note(func() { w.Arrived = append(w.Arrived, t.link.h.now()) })
	if t.ctx.Err() != nil {
		t.quit()
		return
	}
	t.wake()
}

// wake draws how long the wake takes, or both wakes if it is doubled. A lost wake has no trip.
func (w weather) wake(d dice) (trips []time.Duration, trouble string) {
	trip := w.trip(d)
	switch p := d.Float64(); {
	case p < w.wakeLost:
		return nil, "lost"
	case p < w.wakeLost+w.wakeLate:
		return []time.Duration{d.between(backends.Reservation/2, latest)}, "late"
	case p < w.wakeLost+w.wakeLate+w.wakeDoubled:
		return []time.Duration{trip, trip + d.between(quick, latest)}, "doubled"
	}
	return []time.Duration{trip}, ""
}

// register tells the node about a waiter that it can wake.
func (n *node) register(t *turn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turns = append(n.turns, t)
	n.listen(t)
}

// listen makes the store of the node wake t, until the node forgets that store.
func (n *node) listen(t *turn) {
	var ctx context.Context
	ctx, t.stop = context.WithCancel(context.Background())
	over := n.forgotten
	_ = n.store.WatchQueued(ctx, t.key, t.waiter, func() {
		if !over.Load() {
			t.call()
		}
	})
}

// leave removes the position of t. The store does so on another goroutine at this instant, so the
// state of the key is read at the next. With stays the node can still wake t: an attempt of its
// that arrives later gives it a position again.
func (n *node) leave(t *turn, stays bool) {
	before := n.see(t.key)
	t.stop()
	time.AfterFunc(1, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := n.see(t.key)
		s.Op, s.Waiter, s.Before, s.Was, s.WasFor, s.Until = leaves, t.name, before.After, before.Is, before.For, before.Ends
		add(n.h, &n.h.States, s)
		if stays {
			n.listen(t)
		}
	})
}

const leaves = "leaves the queue"

// hangUp is called when a process has died. From now on its waiters are skipped. A reservation for
// one of them stays.
func (n *node) hangUp(p *process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, t := range n.turns {
		if t.link.from != p {
			continue
		}
		// so that the order of two waiters does not depend on goroutines
		apart := time.Duration(10 * i)
		if s := n.see(t.key); s.For == t.name {
			apart += s.Ends - s.At
		}
		time.AfterFunc(apart+1, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.leave(t, false)
		})
	}
}

// resubscribe is called when the node is back. All waiters look, as they do after a broken
// connection.
func (n *node) resubscribe(forgets bool) {
	for _, t := range n.turns {
		if t.link.from.isDead() || t.ctx.Err() != nil {
			continue
		}
		if forgets {
			n.listen(t)
		}
		t.call()
	}
}

// atTheNextTurn strikes the process of the next waiter that the node reserves a key for, before the
// wake arrives.
func (n *node) atTheNextTurn(strike func(*process)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onTurn = strike
}

func (n *node) noteTurn(s *State) {
	if n.onTurn == nil || s.For == "" || s.For == s.WasFor {
		return
	}
	for _, t := range n.turns {
		if t.name == s.For {
			strike := n.onTurn
			n.onTurn = nil
			strike(t.link.from)
			return
		}
	}
}

// reservedFor reads the value that the store in memory gives a reserved key.
func reservedFor(value string) (waiter string, reserved bool) {
	return strings.CutPrefix(value, "\x00reserved for ")
}
