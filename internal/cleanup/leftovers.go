package cleanup

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

const (
	workers = 4 // calls at once while the server answers
	// calls that have not returned, however long they are under way
	maxHanging = 8
	hangLimit  = tryLimit + 100*time.Millisecond // for a call until another one is made beside it
	callLimit  = 5 * time.Second                 // for a call; at hangLimit each, 5 calls are under way
)

// confirmations are the pauses after which an answered cleanup is repeated. The call of the unknown
// attempt may arrive later than the cleanup: from the socket of a server that was stopped, a proxy,
// TCP's retransmission queue.
var confirmations = [...]time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

// leftovers removes entries. While the server answers, a few calls at once remove them; while it
// does not, one call at a time probes it. A call that hangs is replaced by another one, but its
// answer still counts: a slow server answers too. Between two calls there is a timer and no
// goroutine, so that a test in fake time may end before a cleanup does.
type leftovers struct {
	// heard is called at each answer of the server, and gone for each entry that is dropped. They must
	// not call leftovers, whose mutex is locked.
	heard, gone func()

	mu      sync.Mutex
	entries int     // all that are not dropped
	line    line    // the entries that wait for a call
	calls   []*call // under way
	ghosts  ghosts
	server  silence
	alarm   alarm // it rings for tick
}

type call struct {
	of      *entry
	stage   int // of the entry when the call began
	began   time.Time
	overdue bool // it hangs, and another call replaces it
}

// add takes an entry, which has a slot.
func (l *leftovers) add(ctx context.Context, of Entry) {
	now := time.Now()
	e := &entry{Entry: of, ctx: context.WithoutCancel(ctx), end: now.Add(of.TTL), done: of.removed}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries++
	if of.Late != nil {
		e.late = expected
		context.AfterFunc(of.Late, func() { l.arrive(e) })
	}
	if e.done {
		e.over()
		l.answered(e, now, true)
	} else {
		l.ghosts.add(e)
		if e.AtOnce && l.server.silent && len(l.calls) < maxHanging {
			l.start(e, now)
		} else {
			l.line.fresh.push(e)
		}
	}
	l.pump(now)
}

// pump starts the calls that are due, and sets the timer for the next ones.
func (l *leftovers) pump(now time.Time) {
	for l.room() && !l.server.pauses(now) {
		e := l.take(now)
		if e == nil {
			break
		}
		l.start(e, now)
	}
	l.alarm.set(l.next(now), now)
}

// room tells whether one more call may be under way. Calls that hang do not count, up to a number.
func (l *leftovers) room() bool {
	most := workers
	if l.server.silent {
		most = 1
	}
	for _, c := range l.calls {
		if !c.overdue {
			most--
		}
	}
	return most > 0 && len(l.calls) < maxHanging
}

// take takes the next entry to call out of the line, or returns nil. It drops entries that have
// ended.
func (l *leftovers) take(now time.Time) *entry {
	for {
		e := l.line.pop(now, l.server.silent)
		if e == nil || l.awaits(e, now) {
			return e
		}
		l.drop(e)
	}
}

// awaits tells whether the server may have the value or may still write it. If very many calls
// hang, it no longer waits for a server that hangs.
func (l *leftovers) awaits(e *entry, now time.Time) bool {
	return now.Before(e.end) || e.late == expected || l.server.hung && !e.Known && len(l.calls) < maxHanging
}

func (l *leftovers) start(e *entry, now time.Time) {
	c := &call{of: e, stage: e.stage, began: now}
	l.calls = append(l.calls, c)
	go l.make(c)
}

var errGone = errors.New("the call ended its goroutine")

func (l *leftovers) make(c *call) {
	err := errGone
	defer func() { l.returned(c, err) }() // even if the call ends the goroutine
	err = try(c.of.ctx, callLimit, c.of.Remove)
}

// returned records the outcome of a call.
func (l *leftovers) returned(c *call, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	answered := err == nil || outcome.Permanent(err)
	if answered {
		l.hear(now)
		if now.Sub(c.began) > confirmations[0] {
			c.of.revive(now) // its operation may be as slow as this call
		}
	}
	l.calls = slices.DeleteFunc(l.calls, func(other *call) bool { return other == c })
	switch {
	case answered && (!c.overdue || l.recall(c)):
		l.answered(c.of, now, err == nil)
	case c.overdue: // another call is made for this entry
	default:
		l.server.fail(now, err)
		l.line.tried.push(c.of)
	}
	l.pump(now)
}

// recall takes the entry of an overdue call out of the line, or from the call that replaces this
// one. It returns false if the entry was answered meanwhile.
func (l *leftovers) recall(c *call) bool {
	if c.stage != c.of.stage {
		return false
	}
	for _, other := range l.calls {
		if other.of == c.of && !other.overdue {
			other.overdue = true
			return true
		}
	}
	return l.line.tried.remove(c.of)
}

// hear is called at every answer of the server. If the server hung before, it has by now done all
// calls in its buffers, so their values end a TTL from now.
func (l *leftovers) hear(now time.Time) {
	if l.server.hung {
		for _, in := range l.line.lists() {
			for _, e := range in.entries() {
				e.revive(now)
			}
		}
		for _, c := range l.calls {
			c.of.revive(now)
		}
	}
	l.server.answer()
	l.heard()
}

// answered moves an entry to its next confirmation, or drops it.
func (l *leftovers) answered(e *entry, now time.Time, removed bool) {
	l.finish(e)
	if !removed || e.Known {
		l.drop(e)
		return
	}
	if last := e.stage == len(confirmations); last || now.Add(confirmations[e.stage]).After(e.end) {
		switch e.late {
		case expected:
			e.late = parked
		case missed:
			l.anew(e)
		default:
			l.drop(e)
		}
		return
	}
	e.due = now.Add(confirmations[e.stage])
	l.line.later[e.stage].push(e)
	e.stage++
}

// arrive is called when the operation of an entry can no longer arrive. What came just before may still be
// in a buffer of the server.
func (l *leftovers) arrive(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	e.end = now.Add(e.TTL)
	waits := e.stage > 0 && l.line.later[e.stage-1].remove(e) // for its next confirmation
	if e.late == expected && !waits {
		e.late = missed
		return
	}
	l.anew(e)
	l.pump(now)
}

func (l *leftovers) anew(e *entry) {
	e.late, e.stage = arrived, 0
	l.line.fresh.push(e)
}

// finish records that nobody needs to wait for the entry.
func (l *leftovers) finish(e *entry) {
	if e.done {
		return
	}
	e.done = true
	l.ghosts.remove(e)
	e.over()
}

// drop forgets an entry.
func (l *leftovers) drop(e *entry) {
	l.finish(e)
	l.entries--
	l.gone()
}

// tick is called by the timer.
func (l *leftovers) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarm.at = time.Time{}
	now := time.Now()
	for _, c := range l.calls {
		if !c.overdue && !now.Before(c.began.Add(hangLimit)) {
			c.overdue = true
			l.server.fail(now, context.DeadlineExceeded)
			l.line.tried.push(c.of)
		}
	}
	if l.server.silent || !l.room() {
		for _, in := range l.line.lists() {
			in.filter(func(e *entry) bool {
				if l.awaits(e, now) {
					return true
				}
				l.drop(e)
				return false
			})
		}
	}
	l.pump(now)
}

// next is when tick has something to do: for a call that hangs, or for the next entry. Zero: never.
func (l *leftovers) next(now time.Time) (next time.Time) {
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, c := range l.calls {
		if !c.overdue {
			at(c.began.Add(hangLimit))
		}
	}
	switch {
	case l.room():
		earliest := now
		if l.server.silent {
			earliest = l.server.pause.until
		}
		for _, in := range l.line.lists() {
			if e := in.first(); e != nil {
				at(latest(earliest, e.due))
			}
		}
	case next.IsZero() && l.entries > 0: // all calls hang: look again later, when one may have returned
		at(now.Add(maxPause))
	}
	return next
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// probing tells whether the next probe of a server that does not answer is a cleanup.
func (l *leftovers) probing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries > 0 && l.room()
}

func (l *leftovers) stats() (entries, calls int, silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries, len(l.calls), l.server.silent
}

// alarm is a timer that is set anew when it has rung, or to ring sooner.
type alarm struct {
	ring  func()
	timer *time.Timer
	at    time.Time // it will ring; zero: it is not set
}

func (a *alarm) set(at, now time.Time) {
	if at.IsZero() || !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	if d := max(at.Sub(now), 0); a.timer == nil {
		a.timer = time.AfterFunc(d, a.ring)
	} else {
		a.timer.Reset(d)
	}
}
