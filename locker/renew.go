package locker

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
)

// renewals is the one scheduler of a Client. It extends every lock in time and ends the context of a
// lock whose lease is over. It has two heaps of due times and one timer, whatever the number of
// locks. The timer starts with the first lock and is not set
// again once there is none, so a Client needs no Close.
//
// An extension is due when a third of the lease is over. If it fails, or is not answered, the next one follows after a
// third of what is left, and so on, sooner and sooner; several may be under way, so that one connection that hangs
// does not cost the lock.
//
// When leases end, all their contexts end first. Hooks and the cleanup of what is left follow: see follow.
type renewals struct {
	mu  sync.Mutex
	due dueHeap // by the time of the next look
	// holds whose extension is due and has no room, by the end of the lease: the first end is the
	// first extended
	overdue  dueHeap
	timer    *time.Timer
	armed    time.Time // when the timer fires; zero: it is not set
	ticking  bool      // a tick is at work, and will set the timer
	looked   time.Time // when the clocks were last looked at; of no account while there is no lock
	wall     *wallclock.Clock
	set      time.Duration // by how much the wall clock had been set then, since the origin
	origin   time.Time     // of the times at which extensions are due
	inFlight int
	inHand   int     // holds that answered has taken from a heap
	lost     []*hold // their contexts have ended; hooks follow when no other context is about to end
	followUp []*hold // their hooks are due
	telling  int     // goroutines at work on followUp
	looks    []look  // of the tick at work
}

// entry is what the scheduler knows of a hold; renewals.mu guards it.
type entry struct {
	kept    bool     // the scheduler looks after the hold
	handle  *Lock    // until the first renewal: see abandon
	heap    *dueHeap // that the hold is in; nil: in none, for instance because a tick looks at it
	place   int
	changed bool // meanwhile: the time of the next look must be computed again
}

const (
	maxInFlight  = 256                  // extensions of one Client under way at once
	maxPerLock   = 8                    // extensions of one lock under way at once
	maxTelling   = 8                    // goroutines that call hooks of lost locks
	atOnce       = 256                  // holds that a tick takes before it lets others use the scheduler
	tryLimit     = time.Second          // of an extension, or to the next one: one that hangs makes room
	lookInterval = time.Second          // timers stand still while a machine is suspended, and so would a later one
	minRetry     = 5 * time.Millisecond // between two extensions of one lock
)

// add begins to look after h, whose holder has handle. The time to the next look at all counts from
// when there was nothing to look at.
func (r *renewals) add(h *hold, handle *Lock, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.origin.IsZero() {
		r.origin = now
	}
	if r.scheduled() == 0 {
		r.looked = now
	}
	h.entry.kept, h.entry.handle = true, handle
	r.due.push(h, r.since(h.nextDue(now)))
	r.arm()
}

// remove forgets h. The timer stays: setting it costs more than a look at an empty heap.
func (r *renewals) remove(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(h)
}

// reschedule follows a change of the lease of h.
func (r *renewals) reschedule(h *hold) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &h.entry
	switch {
	case !e.kept:
	case e.heap == nil:
		e.changed = true
	default:
		// under the lock: of two that change the lease together, the later one must win
		r.put(h, &r.due, h.nextDue(now))
		r.arm()
	}
}

// follow is for a hold whose context has ended, and which is lost or whose release has had no
// answer. Hooks follow when the contexts of all others whose leases are over have ended as well.
func (r *renewals) follow(h *hold) {
	r.mu.Lock()
	r.forget(h)
	r.lost = append(r.lost, h)
	busy := r.ticking
	r.mu.Unlock()
	if !busy {
		go r.tick()
	}
}

// The mutex is held in what follows, up to tick.

func (r *renewals) since(at time.Time) time.Duration { return at.Sub(r.origin) }

func (r *renewals) scheduled() int { return len(r.due.items) + len(r.overdue.items) }

func (r *renewals) put(h *hold, heap *dueHeap, at time.Time) {
	switch e := &h.entry; e.heap {
	case heap:
		heap.move(e, r.since(at))
		return
	case nil:
	default:
		e.heap.remove(e)
	}
	heap.push(h, r.since(at))
}

func (r *renewals) forget(h *hold) {
	e := &h.entry
	e.kept, e.handle = false, nil
	if e.heap != nil {
		e.heap.remove(e)
	}
}

// arm sets the timer for the first due time, at most lookInterval from the last look. An earlier one is left alone, as it is
// nearly always: so only here the clock is looked at again.
func (r *renewals) arm() {
	if r.scheduled() == 0 || r.ticking {
		return
	}
	next := r.looked.Add(lookInterval)
	for _, heap := range []*dueHeap{&r.due, &r.overdue} {
		if len(heap.items) > 0 {
			next = earlier(next, r.origin.Add(heap.items[0].at))
		}
	}
	if !r.armed.IsZero() && !next.Before(r.armed) {
		return
	}
	r.armed = next
	if d := max(time.Until(next), 0); r.timer == nil {
		r.timer = time.AfterFunc(d, r.tick)
	} else {
		r.timer.Reset(d)
	}
}

// look is what a tick finds out about a hold without the mutex of the scheduler: the hold may have
// to ask a ctx, which may belong to another hold of the same Client.
type look struct {
	hold   *hold
	handle *Lock // on the first renewal
	verdict
}

// tick does what is due.
func (r *renewals) tick() {
	var extend []look
	r.mu.Lock()
	if r.ticking { // it will see what this one is for
		r.mu.Unlock()
		return
	}
	r.ticking, r.armed = true, time.Time{}
	now := time.Now()
	if now.Sub(r.looked) >= lookInterval {
		r.looked = now
		r.checkWallClock(now)
	}
	for r.take(now); len(r.looks) > 0; r.take(now) {
		r.mu.Unlock()
		for i := range r.looks { // which only this tick uses
			l := &r.looks[i]
			l.verdict = l.judge(now)
		}
		r.mu.Lock()
		now = time.Now()
		for i := range r.looks {
			l := &r.looks[i]
			if r.putBack(l, now) {
				extend = append(extend, *l)
			}
		}
		clear(r.looks)
	}
	r.ticking = false
	if r.inHand == 0 { // else the context of a hold that answered has in hand may have to end first
		r.followUp = append(r.followUp, r.lost...)
		clear(r.lost)
		r.lost = r.lost[:0]
	}
	tellers := min(maxTelling, len(r.followUp)) - r.telling
	r.telling += max(tellers, 0)
	r.arm()
	r.mu.Unlock()

	for i := range extend {
		r.extend(&extend[i], now)
	}
	for range tellers {
		go r.tell()
	}
}

// take takes holds that are due out of their heaps.
func (r *renewals) take(now time.Time) {
	r.looks = r.looks[:0]
	for _, heap := range []*dueHeap{&r.overdue, &r.due} {
		for len(r.looks) < atOnce && len(heap.items) > 0 && heap.items[0].at <= r.since(now) {
			r.looks = append(r.looks, look{hold: heap.pop()})
		}
	}
}

// judge tells what is due. A lease that is over is told at once.
func (l *look) judge(now time.Time) verdict {
	v := l.hold.act(now)
	switch v.what {
	case actExpire:
		v.lost = l.hold.end(l.hold.expired(), now)
	case actStop:
		v.lost = l.hold.end(&LostError{Key: l.hold.lease.Key, Reason: LostMaxHold}, now)
	case actEnded:
		// ends the context: the goroutine that has ended the hold may not have come that far
		l.hold.checkClock(now)
	}
	return v
}

// putBack sets the time of the next look, and tells whether to extend the lease.
func (r *renewals) putBack(l *look, now time.Time) (extend bool) {
	e := &l.hold.entry
	changed := e.changed
	e.changed = false
	switch {
	case l.lost:
		r.lost = append(r.lost, l.hold)
		r.forget(l.hold)
	case !e.kept: // removed meanwhile
	case changed:
		r.put(l.hold, &r.due, l.hold.nextDue(now))
	case l.what == actExtend && r.inFlight < maxInFlight:
		r.inFlight++
		r.put(l.hold, &r.due, l.due)
		l.handle, e.handle = e.handle, nil
		return true
	case l.what == actExtend:
		r.put(l.hold, &r.overdue, l.end)
	default:
		r.put(l.hold, &r.due, l.due)
	}
	return false
}

// checkWallClock looks for leases that end sooner because the wall clock was set, or the machine
// suspended, since the last look. Unless that is so it looks at none, and there may be a hundred
// thousand.
func (r *renewals) checkWallClock(now time.Time) {
	set := r.wall.At(now).Round(0).Sub(r.origin.Round(0)) - now.Sub(r.origin)
	if (set - r.set).Abs() < clockTolerance {
		return
	}
	r.set = set
	for _, heap := range []*dueHeap{&r.due, &r.overdue} {
		for i := range heap.items {
			item := &heap.items[i]
			h := item.hold
			h.mu.Lock()
			if h.over == nil {
				item.at = min(item.at, r.since(h.endBy(now)))
			}
			h.mu.Unlock()
		}
		heap.sort()
	}
}

const clockTolerance = time.Millisecond // the margin of a lease has two

// tell calls the hooks of locks that are over until there are none. A hook may take its time: a few
// goroutines share the work, whatever the number of locks.
func (r *renewals) tell() {
	for {
		r.mu.Lock()
		if len(r.followUp) == 0 {
			r.telling--
			r.mu.Unlock()
			return
		}
		h := r.followUp[0]
		r.followUp[0] = nil
		if r.followUp = r.followUp[1:]; len(r.followUp) == 0 {
			r.followUp = nil
		}
		r.mu.Unlock()
		r.tellOne(h)
	}
}

func (r *renewals) tellOne(h *hold) {
	returned := false
	defer func() {
		if !returned { // a hook ends the goroutine
			go r.tell()
		}
	}()
	h.follow()
	returned = true
}

// answered is called when an extension is over, and makes those that are overdue and for which there is room.
func (r *renewals) answered() {
	var extend []look
	now := time.Now()
	r.mu.Lock()
	r.inFlight--
	for len(r.overdue.items) > 0 && r.inFlight < maxInFlight {
		l := look{hold: r.overdue.pop()}
		r.inHand++
		r.mu.Unlock()
		l.verdict = l.hold.act(now)
		if l.what == actExpire || l.what == actStop { // the tick does that
			l.what, l.due = actNothing, now
		}
		r.mu.Lock()
		r.inHand--
		if r.putBack(&l, now) {
			extend = append(extend, l)
		}
	}
	r.arm()
	follow := r.inHand == 0 && len(r.lost) > 0 && !r.ticking
	r.mu.Unlock()
	if follow {
		go r.tick()
	}
	for i := range extend {
		r.extend(&extend[i], now)
	}
}

// extend makes an extension, which is counted among those in flight.
func (r *renewals) extend(l *look, now time.Time) {
	h := l.hold
	if l.handle != nil {
		runtime.AddCleanup(l.handle, (*hold).abandon, h)
	}
	c := &extendCall{h: h, ctx: context.WithoutCancel(h.parent), ttl: h.ttl, limit: h.tryLimit(now)}
	if h.begin(c) != nil {
		r.answered()
		return
	}
	go c.run()
}

// verdict is what is due for a hold.
type verdict struct {
	what action
	due  time.Time // of the next look
	end  time.Time // of the hold, unless it is extended
	lost bool      // its context has just ended for that reason
}

type action int

const (
	actNothing action = iota
	actExtend
	actStop
	actExpire
	actEnded // by another goroutine
)

// act says what is due for h at now.
func (h *hold) act(now time.Time) verdict {
	unwanted := h.parent.Err() != nil // the ctx given to Lock is over
	h.mu.Lock()
	defer h.mu.Unlock()
	v := verdict{end: h.limit(h.lease.Expires, now)}
	switch {
	case h.over != nil: // it is about to leave the scheduler
		v.what, v.due = actEnded, now.Add(lookInterval)
		return v
	case h.lease.endedAt(now):
		v.what = actExpire
	case h.most > 0 && !now.Before(h.lease.Granted.Add(h.most)):
		v.what = actStop
	case !h.extend || unwanted:
		v.due = h.lease.Expires
	case now.Before(h.renewalDue()):
		v.due = h.renewalDue()
	case h.underWay() >= maxPerLock:
		v.due = now.Add(minRetry)
	default:
		v.what, v.due = actExtend, now.Add(max(h.lease.Expires.Sub(now)/3, minRetry))
	}
	if v.what == actExpire || v.what == actStop {
		v.due = now.Add(lookInterval) // it leaves the scheduler when it is told
	} else if v.due = h.limit(v.due, now); !v.due.After(now) {
		v.due = now.Add(time.Millisecond) // not at once: a tick looks until nothing is due
	}
	return v
}

// tryLimit is how long a scheduled extension may take: until the next one, and a second if that is longer.
func (h *hold) tryLimit(now time.Time) time.Duration {
	return max(h.leaseNow().Expires.Sub(now)/3, tryLimit)
}

// nextDue is the time of the first look after a grant or an extension. renewals.mu is held.
func (h *hold) nextDue(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := h.lease.Expires
	if h.extend {
		due = h.renewalDue()
		if soonest := now.Add(minRetry); due.Before(soonest) {
			due = soonest
		}
	}
	return h.limit(due, now)
}

// renewalDue is when a third of the TTL is over, or as much later as the lease was made longer; or earlier by up to a hundredth
// of the TTL, so that the extensions of many locks are due at once and share round trips.
func (h *hold) renewalDue() time.Time {
	due := h.lease.Expires.Add(-h.ttl * 2 / 3)
	return due.Add(-(due.Sub(h.client.renewals.origin) % (h.ttl / 100)))
}

// limit cuts a due time to the ends that must not be missed.
func (h *hold) limit(due, now time.Time) time.Time {
	due = earlier(due, h.endBy(now))
	if h.most > 0 {
		due = earlier(due, h.lease.Granted.Add(h.most))
	}
	return due
}

// endBy is when the lease ends by the clock that comes first, as a time of the monotonic clock.
func (h *hold) endBy(now time.Time) time.Time {
	if set := h.lease.setSince(now); set >= clockTolerance {
		return h.lease.Expires.Add(-set)
	}
	return h.lease.Expires
}
