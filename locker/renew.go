package locker

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
)

// renewals is the one scheduler of a Client: it extends every lock in time and tells its holder when that fails. It is
// a heap of due times and one timer, whatever the number of locks. The timer starts with the first lock and is not set
// again once there is none, so a Client needs no Close.
//
// An extension is due when a third of the lease is over. If it fails, or is not answered, the next one follows after a
// third of what is left, and so on, sooner and sooner; several may be under way, so that one connection that hangs
// does not cost the lock.
type renewals struct {
	mu       sync.Mutex
	heap     dueHeap
	timer    *time.Timer
	armed    time.Time // when the timer fires; zero: it is not set
	looked   time.Time // when the clocks were last looked at; of no account while there is no lock
	wall     *wallclock.Clock
	set      time.Duration // by how much the wall clock had been set then, since the origin
	doubt    time.Time     // the end of the last lease that was there when the wall clock was set: it may end before it is due
	origin   time.Time     // of the times at which extensions are due
	inFlight int
	backlog  backlog
}

const (
	maxInFlight  = 256                  // extensions of one Client under way at once
	maxPerLock   = 8                    // extensions of one lock under way at once
	tryLimit     = time.Second          // of an extension, or to the next one: one that hangs makes room
	lookInterval = time.Second          // timers stand still while a machine is suspended, and so would a later one
	minRetry     = 5 * time.Millisecond // between two extensions of one lock
)

// add begins to look after l. The time to the next look at all counts from when there was nothing to look at.
func (r *renewals) add(l *Lock, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.origin.IsZero() {
		r.origin = now
	}
	l.due = l.nextDue(now)
	if len(r.heap) == 0 {
		r.looked = now
	}
	heap.Push(&r.heap, l)
	r.arm()
}

// remove forgets l. The timer stays: setting it costs more than a look at an empty heap.
func (r *renewals) remove(l *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.place >= 0 {
		heap.Remove(&r.heap, l.place)
	}
}

// reschedule follows a change of the lease of l.
func (r *renewals) reschedule(l *Lock) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.place >= 0 && !l.released {
		l.due = l.nextDue(now) // under the lock: of two that change the lease together, the later one must win
		heap.Fix(&r.heap, l.place)
		r.arm()
	}
}

// watchRelease has the deadline of a Release kept, instead of all else about a Lock that is unlocked.
func (r *renewals) watchRelease(l *Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.due, l.released = l.releasing.deadline, true
	heap.Fix(&r.heap, l.place)
	r.arm()
}

// arm sets the timer for the first due time, at most lookInterval from the last look. An earlier one is left alone, as it is
// nearly always: so only here the clock is looked at again.
func (r *renewals) arm() {
	if len(r.heap) == 0 {
		return
	}
	next := earlier(r.heap[0].due, r.looked.Add(lookInterval))
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

// tick does what is due.
func (r *renewals) tick() {
	var ended, stopped, late []*Lock
	var extend []*extendCall
	now := time.Now()
	r.mu.Lock()
	r.armed = time.Time{}
	if now.Sub(r.looked) >= lookInterval {
		r.looked = now
		ended = r.endedByWallClock(now)
	}
	for len(r.heap) > 0 && !r.heap[0].due.After(now) {
		l := r.heap[0]
		if l.released {
			late = append(late, l)
			heap.Pop(&r.heap)
			continue
		}
		var what action
		switch what, l.due = l.act(now, r.inFlight < maxInFlight); what {
		case actExpire:
			ended = append(ended, l)
			l.due = now.Add(lookInterval) // it leaves the heap when it is told
		case actStop:
			stopped = append(stopped, l)
			l.due = now.Add(lookInterval)
		case actExtend:
			extend = r.extend(extend, l, now)
		case actWait:
			r.backlog.add(l)
		}
		heap.Fix(&r.heap, 0)
	}
	r.arm()
	r.mu.Unlock()

	for _, l := range ended {
		l.lose(l.expired())
	}
	for _, l := range stopped {
		l.lose(&LostError{Key: l.Key(), Reason: LostMaxHold})
	}
	for _, l := range late {
		l.releasing.expire()
		go l.resend() // whether or not the first Release follows its ctx
	}
	start(extend)
}

// endedByWallClock are the locks that have ended although no due time says so. It looks at none, and there may be a hundred
// thousand, unless the wall clock was set, or the machine suspended, while one of the leases was there.
func (r *renewals) endedByWallClock(now time.Time) (ended []*Lock) {
	set := r.wall.Now().Round(0).Sub(r.origin.Round(0)) - now.Sub(r.origin)
	wasSet := (set - r.set).Abs() >= clockTolerance
	if wasSet {
		r.set = set
	}
	if !wasSet && !now.Before(r.doubt) {
		return nil
	}
	for _, l := range r.heap {
		l.mu.Lock()
		if l.lease.endedAt(now) {
			ended = append(ended, l)
		} else if wasSet {
			r.doubt = later(r.doubt, l.lease.Expires)
		}
		l.mu.Unlock()
	}
	return ended
}

const clockTolerance = time.Millisecond // the margin of a lease has two

// answered is called when an extension is over, and makes those of the backlog for which there is room.
func (r *renewals) answered() {
	var extend []*extendCall
	now := time.Now()
	r.mu.Lock()
	r.inFlight--
	for len(r.backlog) > 0 && r.inFlight < maxInFlight {
		l := r.backlog.take()
		if l.place < 0 || l.released {
			continue
		}
		what, due := l.act(now, true)
		if what == actExtend {
			extend = r.extend(extend, l, now)
		}
		l.due = due // what else is to be done is done then, by tick
		heap.Fix(&r.heap, l.place)
		r.arm()
	}
	r.mu.Unlock()
	start(extend)
}

// extend adds an extension of l to those that are to be started, and counts it in.
func (r *renewals) extend(calls []*extendCall, l *Lock, now time.Time) []*extendCall {
	c := &extendCall{l: l, ctx: context.WithoutCancel(l.ctx.Context), ttl: l.ttl, limit: l.tryLimit(now)}
	if l.begin(c) != nil {
		return calls
	}
	r.inFlight++
	return append(calls, c)
}

func start(calls []*extendCall) {
	for _, c := range calls {
		c.l.client.workers.start(c)
	}
}

type action int

const (
	actNothing action = iota
	actExtend
	actWait // to extend, when there is room
	actStop
	actExpire
)

// act says what is due for l at now, and gives the time of the next look.
func (l *Lock) act(now time.Time, room bool) (action, time.Time) {
	unwanted := l.ctx.Context.Err() != nil // the ctx given to Lock is over
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over != nil: // it is about to leave the heap
		return actNothing, now.Add(lookInterval)
	case l.lease.endedAt(now):
		return actExpire, now
	case !l.stop.IsZero() && !now.Before(l.stop):
		return actStop, now
	case !l.extend || unwanted:
		return actNothing, l.limit(l.lease.Expires)
	case now.Before(l.renewalDue()):
		return actNothing, l.limit(l.renewalDue())
	case l.underWay() >= maxPerLock:
		return actNothing, l.limit(now.Add(minRetry))
	case !room:
		return actWait, l.limit(l.lease.Expires)
	}
	return actExtend, l.limit(now.Add(max(l.lease.Expires.Sub(now)/3, minRetry)))
}

// tryLimit is how long a scheduled extension may take: until the next one, and a second if that is longer.
func (l *Lock) tryLimit(now time.Time) time.Duration {
	return max(l.Lease().Expires.Sub(now)/3, tryLimit)
}

// nextDue is the time of the first look after a grant or an extension.
func (l *Lock) nextDue(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := &l.client.renewals; l.lease.setSince(now) >= clockTolerance {
		r.doubt = later(r.doubt, l.lease.Expires)
	}
	due := l.lease.Expires
	if l.extend {
		due = l.renewalDue()
		if soonest := now.Add(minRetry); due.Before(soonest) {
			due = soonest
		}
	}
	return l.limit(due)
}

// renewalDue is when a third of the TTL is over, or as much later as the lease was made longer; or earlier by up to a hundredth
// of the TTL, so that the extensions of many locks are due at once and share round trips.
func (l *Lock) renewalDue() time.Time {
	due := l.lease.Expires.Add(-l.ttl * 2 / 3)
	return due.Add(-(due.Sub(l.client.renewals.origin) % (l.ttl / 100)))
}

// limit cuts a due time to the ends that must not be missed.
func (l *Lock) limit(due time.Time) time.Time {
	due = earlier(due, l.lease.Expires)
	if !l.stop.IsZero() {
		due = earlier(due, l.stop)
	}
	return due
}

// dueHeap orders locks by due time; see container/heap.
type dueHeap []*Lock

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *dueHeap) Push(x any) {
	l := x.(*Lock)
	l.place = len(*h)
	*h = append(*h, l)
}

func (h *dueHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.place = -1
	return l
}
