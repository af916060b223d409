package simulation

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A link has queues, and no more of them than package redisstore: a place is given with an answer, a wake is one message to one
// waiter, and who gives up his place says so with a message of his own. Each of the three may get lost.

var _ backends.QueuedStore = (*link)(nil)

// A turn is a waiter whom a process lets the node wake.
type turn struct {
	link              *link
	ctx               context.Context // of his watch
	key, waiter, name string
	wake              func()
	asked             atomic.Bool // he may have a place

	stop context.CancelFunc // ends what the node knows of him; the mutex of the node is for it
}

// SetNXQueued is SetNX for who neither has a place nor minds those who have, as it is for package redisstore.
func (l *link) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (result, error) {
	if t.Waiter == "" && !t.InOrder {
		return l.SetNX(ctx, key, value, ttl)
	}
	return l.setInTurn(ctx, Message{Op: "SetNXQueued", Key: key, Token: value, TTL: ttl}, t, l.SetNX, commands.SetNXQueued)
}

// SetNXNumbered is SetNXQueued with a number.
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

// setInTurn asks in the queue; a key that is likely to be free it asks for by ifFree.
func (l *link) setInTurn(
	ctx context.Context, m Message, t backends.Turn,
	ifFree func(ctx context.Context, key, value string, ttl time.Duration) (result, error),
	inTurn func(c commands, ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (result, error),
) (result, error) {
	mine := l.turnOf(t.Waiter)
	if t.Free && !t.InOrder && mine != nil && !mine.asked.Load() {
		if r, err := ifFree(ctx, m.Key, m.Token, m.TTL); r.OK || err != nil {
			return r, err
		}
	}
	if mine != nil {
		mine.asked.Store(true)
	}
	m.Waiter, m.TTL = t.Waiter, l.ttl(m.TTL)
	a := l.ask(ctx, m, func(c commands) answer { return granted(inTurn(c, at, m.Key, m.Token, m.TTL, t)) })
	switch {
	case mine == nil:
	case a.ok: // he has no place any more
		mine.asked.Store(false)
	case mine.ctx.Err() != nil: // what he sent when he left may have been there first
		go mine.quit()
	}
	return a.result, a.err
}

// WatchQueued opens the way on which the node wakes the waiter.
func (l *link) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &turn{link: l, ctx: ctx, key: key, waiter: waiter, name: l.h.nameNew(waiter, l.from.name+"~"+key), wake: wake}
	there, back := l.cutOffFor()
	time.Sleep(max(there, back) + l.dice("watch", t.name).between(quickest, quick))
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

// quitLimit is that of package redisstore.
const quitLimit = 5 * time.Second

// quit gives up a place. It is not repeated.
func (t *turn) quit() {
	ctx, cancel := context.WithTimeout(context.Background(), quitLimit)
	defer cancel()
	t.link.ask(ctx, Message{Op: quits, Key: t.key, Waiter: t.waiter, turn: t}, nil)
}

const quits = "Quit"

// call sends the wake, which no answer tells of.
func (t *turn) call() {
	l := t.link
	trips, trouble := l.weather.wake(l.dice("turn", t.name))
	w := &Wake{Node: l.to.number, Key: t.key, Waiter: t.name, Sent: l.h.now(), Trouble: trouble}
	add(l.h, &l.h.Wakes, w)
	for _, trip := range trips {
		time.AfterFunc(trip, func() { t.hear(w, trip) })
	}
}

// hear is in the process. Who has gone gives the place up that he seems to have.
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

// wake draws the way of a wake, or of two, or none.
func (w weather) wake(d dice) (trips []time.Duration, trouble string) {
	trip := d.between(quickest, quick)
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

// register lets the node know of a waiter whom it can wake.
func (n *node) register(t *turn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.turns = append(n.turns, t)
	n.listen(t)
}

// listen has the store of the node wake t, as long as that store is the node's.
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

// leave takes his place from t. The store does so in its own time, but at this instant; what has become of the key is to be
// seen at the next. Unless his process has gone, t could still be told: a message of his that comes later gives him a
// place again.
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

// hangUp is told that a process has died. Its waiters are passed over from now on; what is reserved for one of them stays so.
func (n *node) hangUp(p *process) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, t := range n.turns {
		if t.link.from != p {
			continue
		}
		apart := time.Duration(10 * i) // or who of two is passed over first would be open
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

// resubscribe is for when the node has come back: those who waited look, as they do after each connection that broke.
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

// atTheNextTurn strikes the process of the next waiter for whom the node reserves a key, before he hears of it.
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

// reservedFor reads what the store in memory puts under a key that waits for someone.
func reservedFor(value string) (waiter string, reserved bool) {
	return strings.CutPrefix(value, "\x00reserved for ")
}
