package locker

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
)

// scheduler calls each task when it is due. A Client has one. It has two heaps of due times and one
// timer, whatever the number of tasks. The timer starts with the first task and is not set again
// when there is none, so a Client needs no Close.
//
// When leases end, all their contexts end first. Hooks and cleanups follow: see follow.
type scheduler struct {
	mu  sync.Mutex
	due dueHeap // by the time of the next look
	// tasks whose renewal is due and has no room, by the end of the lease: the lease that ends
	// first is renewed first
	overdue  dueHeap
	timer    *time.Timer
	armed    time.Time // when the timer fires; zero: it is not set
	ticking  bool      // a tick is at work, and will set the timer
	looked   time.Time // when the clocks were last read; unused while there is no task
	wall     *wallclock.Clock
	set      time.Duration // how far the wall clock had been set ahead then, since the origin
	origin   time.Time     // the zero of all due times
	underWay list.List     // of renewals, the oldest first; without those that hang
	inFlight int           // all renewals under way
	// how long a renewal takes that does not hang: by those answered since the last look at the clocks, and
	// between the last two looks; 0: none was
	patience [2]time.Duration
	inHand   int    // tasks that renewed has taken from a heap
	over     []task // they are over; their hooks follow when no other context is about to end
	followUp []task // their hooks are due
	telling  int    // goroutines at work on followUp
	looks    []look // of the tick at work
}

// task is what a scheduler keeps: a hold. The scheduler knows nothing else of it.
type task interface {
	// scheduled is the task's own entry.
	scheduled() *entry
	// firstLook is when to look at the task after a grant or a renewal. The scheduler's mutex is
	// held.
	firstLook(now time.Time) time.Time
	// endBy is when the lease ends by the clock that is first; false: it has ended already. The
	// mutex is held.
	endBy(now time.Time) (end time.Time, lasts bool)
	// look says what is due now. It may take long, since it asks a ctx of the caller.
	look(now time.Time) verdict
	// stop ends the task because its lease or its maximum hold is over, and tells whether this call
	// did.
	stop(v verdict, now time.Time) (first bool)
	// renew begins r. It calls renewed of the scheduler when that is over.
	renew(r *renewal)
	// follow runs the hooks and the cleanup of a task that is over.
	follow()
}

// renewal is one that has room, from before it begins until it is over.
type renewal struct {
	task  task
	place *list.Element // in underWay
	began time.Time
	most  time.Duration // it may last; 0: no such limit
}

// entry is what the scheduler stores in a task. The scheduler's mutex guards it.
type entry struct {
	task    task          // nil: the scheduler does not keep it
	heap    *dueHeap      // that holds it; nil: none, for instance while a tick looks at it
	at      time.Duration // of the next look, since the origin of the scheduler
	index   int32         // in heap; beside changed, since each lock held has an entry
	changed bool          // while heap was nil: firstLook must be asked again
}

// verdict is what is due for a task.
type verdict struct {
	what action
	due  time.Time // of the next look
	end  time.Time // of the task, unless it is renewed
	hung bool      // its last renewal had no answer, or has none yet
}

type action int

const (
	actNothing action = iota
	actRenew
	actStop   // the maximum hold is over
	actExpire // the lease is over
	actEnded  // another goroutine has ended it
)

const (
	// Renewals of one Client under way at once. One that hangs while others are answered leaves its room to
	// another lock, since it may be for one silent server of several. It goes on, since that may be slow.
	maxInFlight = 256
	maxRenewals = 4096                   // with those that hang
	maxHung     = maxRenewals / 4        // the same, for a lock to have one more after one that hung
	drawn       = 16                     // of maxInFlight, for locks drawn by chance while none is answered
	minPatience = 100 * time.Millisecond // or three times what the slowest took that was answered lately
	hangLimit   = 3 * time.Second        // for a renewal while others hang, or patience if that is longer
	maxTelling  = 8                      // goroutines that call hooks
	// Tasks that a tick takes before it lets Lock and Unlock use the scheduler. A tick that took
	// 100,000 at once would keep them waiting for more than 20 ms (BenchmarkScheduler).
	atOnce       = 256
	lookInterval = time.Second // timers stand still while a machine is suspended, and so would a later one
)

// add keeps t from now on.
func (s *scheduler) add(t task, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.origin.IsZero() {
		s.origin = now
	}
	if s.tasks() == 0 {
		s.looked = now
	}
	e := t.scheduled()
	e.task = t
	s.due.push(e, s.since(t.firstLook(now)))
	s.arm()
}

// remove forgets t. It does not stop the timer: that costs more than a look at an empty heap.
func (s *scheduler) remove(t task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(t.scheduled())
}

// reschedule follows a change of the lease of t.
func (s *scheduler) reschedule(t task) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := t.scheduled()
	switch {
	case e.task == nil:
	case e.heap == nil:
		e.changed = true
	default:
		// Ask under the mutex: if two goroutines change the lease at once, the later one must win.
		s.put(e, &s.due, t.firstLook(now))
		s.arm()
	}
}

// follow forgets t, whose context has ended, and has its hooks called when the contexts of all
// other tasks whose leases are over have ended as well.
func (s *scheduler) follow(t task) {
	s.mu.Lock()
	s.forget(t.scheduled())
	s.over = append(s.over, t)
	busy := s.ticking
	s.mu.Unlock()
	if !busy {
		go s.tick()
	}
}

// renewed is called when r is over.
func (s *scheduler) renewed(r *renewal, answered bool) {
	now := time.Now()
	s.mu.Lock()
	s.inFlight--
	s.underWay.Remove(r.place) // unless it hangs
	if answered {
		s.patience[0] = max(s.patience[0], 3*now.Sub(r.began), minPatience)
	}
	renew := s.fill(now)
	s.arm()
	follow := s.inHand == 0 && len(s.over) > 0 && !s.ticking
	s.mu.Unlock()
	if follow {
		go s.tick()
	}
	for _, r := range renew {
		r.task.renew(r)
	}
}

// fill takes the renewals that are overdue, as far as there is room. The mutex is held, but for looks.
func (s *scheduler) fill(now time.Time) (renew []*renewal) {
	for len(s.overdue.items) > 0 && s.room(now, maxInFlight) {
		next := s.overdue.items[0]
		if s.patient() == 0 && s.underWay.Len() >= maxInFlight-drawn { // all before it may be of one server
			next = s.overdue.items[rand.IntN(len(s.overdue.items))]
		}
		s.overdue.remove(next)
		l := look{task: next.task}
		s.inHand++
		s.mu.Unlock()
		l.verdict = l.task.look(now)
		if l.what == actExpire || l.what == actStop { // the tick does that
			l.what, l.due = actNothing, now
		}
		s.mu.Lock()
		s.inHand--
		if r := s.putBack(&l, now, true); r != nil {
			renew = append(renew, r)
		}
	}
	return renew
}

// look is what a tick finds out about a task without the mutex: the task may have to ask a ctx,
// which may belong to another hold of the same Client.
type look struct {
	task task
	verdict
	ended bool // this look has ended the task
}

// tick does what is due.
func (s *scheduler) tick() {
	var renew []*renewal
	s.mu.Lock()
	if s.ticking { // that tick does what this one is for
		s.mu.Unlock()
		return
	}
	s.ticking, s.armed = true, time.Time{}
	now := time.Now()
	if now.Sub(s.looked) >= lookInterval {
		s.looked = now
		s.patience[0], s.patience[1] = 0, s.patience[0]
		s.checkWallClock(now)
	}
	for s.take(now); len(s.looks) > 0; s.take(now) {
		s.mu.Unlock()
		for i := range s.looks { // only this tick uses them
			l := &s.looks[i]
			l.verdict = l.task.look(now)
			l.ended = l.what > actRenew && l.task.stop(l.verdict, now)
		}
		s.mu.Lock()
		now = time.Now()
		for i := range s.looks {
			if r := s.putBack(&s.looks[i], now, false); r != nil {
				renew = append(renew, r)
			}
		}
		clear(s.looks)
	}
	renew = append(renew, s.fill(now)...)
	s.ticking = false
	if s.inHand == 0 { // else the context of a task that renewed has in hand may have to end first
		s.followUp = append(s.followUp, s.over...)
		clear(s.over)
		s.over = s.over[:0]
	}
	tellers := min(maxTelling, len(s.followUp)) - s.telling
	s.telling += max(tellers, 0)
	s.arm()
	s.mu.Unlock()

	for _, r := range renew {
		r.task.renew(r)
	}
	for range tellers {
		go s.tell()
	}
}

// tell calls the hooks of tasks that are over until there are none. A hook may take long: a few
// goroutines share the work, whatever the number of tasks.
func (s *scheduler) tell() {
	for {
		s.mu.Lock()
		if len(s.followUp) == 0 {
			s.telling--
			s.mu.Unlock()
			return
		}
		t := s.followUp[0]
		s.followUp[0] = nil
		if s.followUp = s.followUp[1:]; len(s.followUp) == 0 {
			s.followUp = nil
		}
		s.mu.Unlock()
		s.tellOne(t)
	}
}

func (s *scheduler) tellOne(t task) {
	returned := false
	defer func() {
		if !returned { // a hook ends the goroutine
			go s.tell()
		}
	}()
	t.follow()
	returned = true
}

// The mutex is held in all that follows.

func (s *scheduler) since(at time.Time) time.Duration { return at.Sub(s.origin) }

func (s *scheduler) tasks() int { return len(s.due.items) + len(s.overdue.items) }

func (s *scheduler) put(e *entry, heap *dueHeap, at time.Time) {
	switch e.heap {
	case heap:
		heap.move(e, s.since(at))
		return
	case nil:
	default:
		e.heap.remove(e)
	}
	heap.push(e, s.since(at))
}

func (s *scheduler) forget(e *entry) {
	e.task = nil
	if e.heap != nil {
		e.heap.remove(e)
	}
}

// arm sets the timer for the first due time, but at most lookInterval after the last look. If the
// timer is set for an earlier time, as it nearly always is, arm leaves it and reads no clock. See
// bench/regress/mechanisms.md.
func (s *scheduler) arm() {
	if s.tasks() == 0 || s.ticking {
		return
	}
	next := s.looked.Add(lookInterval)
	for _, heap := range []*dueHeap{&s.due, &s.overdue} {
		if len(heap.items) > 0 {
			next = earlier(next, s.origin.Add(heap.items[0].at))
		}
	}
	if hangs := s.patient(); hangs > 0 && len(s.overdue.items) > 0 && s.inFlight < maxRenewals && s.underWay.Len() > 0 {
		next = earlier(next, s.underWay.Front().Value.(*renewal).began.Add(hangs))
	}
	if !s.armed.IsZero() && !next.Before(s.armed) {
		return
	}
	s.armed = next
	if d := max(time.Until(next), 0); s.timer == nil {
		s.timer = time.AfterFunc(d, s.tick)
	} else {
		s.timer.Reset(d)
	}
}

// take moves the tasks that are due from their heaps to looks.
func (s *scheduler) take(now time.Time) {
	s.looks = s.looks[:0]
	for _, heap := range []*dueHeap{&s.overdue, &s.due} {
		for len(s.looks) < atOnce && len(heap.items) > 0 && heap.items[0].at <= s.since(now) {
			s.looks = append(s.looks, look{task: heap.pop().task})
		}
	}
}

// putBack sets the time of the next look, and makes a renewal if it is due and has room. Those that were
// overdue go first.
func (s *scheduler) putBack(l *look, now time.Time, wasOverdue bool) *renewal {
	most, first := maxInFlight, true
	if !wasOverdue {
		most, first = maxInFlight-drawn, len(s.overdue.items) == 0
	}
	e := l.task.scheduled()
	changed := e.changed
	e.changed = false
	switch {
	case l.ended:
		s.over = append(s.over, l.task)
		s.forget(e)
	case e.task == nil: // removed meanwhile
	case changed:
		s.put(e, &s.due, l.task.firstLook(now))
	case l.what == actRenew && l.hung && s.inFlight >= maxHung:
		s.put(e, &s.due, l.due)
	case l.what == actRenew && first && s.room(now, most):
		s.put(e, &s.due, l.due)
		r := &renewal{task: l.task, began: now}
		if s.inFlight >= maxInFlight {
			r.most = max(s.patient(), hangLimit)
		}
		s.inFlight++
		r.place = s.underWay.PushBack(r)
		return r
	case l.what == actRenew:
		s.put(e, &s.overdue, l.end)
	default:
		s.put(e, &s.due, l.due)
	}
	return nil
}

// room tells whether one more renewal may begin. The oldest one leaves its room to that if it hangs.
func (s *scheduler) room(now time.Time, most int) bool {
	if s.inFlight >= maxRenewals {
		return false
	}
	if s.underWay.Len() >= most {
		oldest, hangs := s.underWay.Front(), s.patient()
		if hangs == 0 || now.Sub(oldest.Value.(*renewal).began) < hangs {
			return false
		}
		s.underWay.Remove(oldest)
	}
	return true
}

// patient is how long a renewal may have no answer until it hangs; 0: no renewal was answered lately.
func (s *scheduler) patient() time.Duration { return max(s.patience[0], s.patience[1]) }

// checkWallClock finds leases that end sooner because, since the last look, the wall clock was set
// or the machine was suspended. If neither happened it looks at no lease: there may be a hundred
// thousand.
func (s *scheduler) checkWallClock(now time.Time) {
	set := s.wall.At(now).Round(0).Sub(s.origin.Round(0)) - now.Sub(s.origin)
	if (set - s.set).Abs() < clockTolerance {
		return
	}
	s.set = set
	for _, heap := range []*dueHeap{&s.due, &s.overdue} {
		for _, e := range heap.items {
			if end, lasts := e.task.endBy(now); lasts {
				e.at = min(e.at, s.since(end))
			}
		}
		heap.sort()
	}
}

const clockTolerance = time.Millisecond // the margin of a lease has two

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
