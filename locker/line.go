package locker

import (
	"cmp"
	"context"
	"github.com/lockstep-go/lockstep/locker/contract"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// lines are the waiters of one Client. The waiters for one key and owner stand in a line, and only
// the head of a line talks to the store. So a release that a hundred goroutines wait for costs one
// attempt, and they get the lock in the order in which they asked for it. If the head is granted a
// lease that has room for others, they are let out of the line together, one attempt each.
type lines struct {
	mu    sync.Mutex // guards the lines as well
	byKey map[string]*line
	// lines that nobody else ever joined, for the next caller: bench/regress/mechanisms.md
	spare sync.Pool

	shared bool                 // with other software: see WithOtherSoftware; set by New, as holder is
	holder holder               // in tokens and the names of waiters
	rests  map[string]time.Time // until when this Client leaves a key that it has released to others
}

// line is a head, which is not in queue, and the waiters behind it. What the head learns stays with
// the line, so the next head goes on where the last one stopped.
//
// A head whose attempt hangs keeps its line waiting until the attempt has reached its limit: the next
// waiter would only hang as well, and each waiter leaves with its own ctx.
type line struct {
	key, owner string        // do not change while a call is in the line
	signal     chan struct{} // holds one signal for the head

	// guarded by the mutex of the lines
	other *line // the line of another owner for the same key
	queue []*waiter
	last  uint64        // place that was given out
	ttl   time.Duration // that the head asks for
	joins bool          // the first attempt of the head joins the lease of the head before
	late  bool          // the head joined, or was handed a lease: nobody joins its lease
	busy  bool          // the head has an attempt under way, or has taken a lease: it can take none
	idle  *time.Timer   // ends a line that is kept though nobody is in it; nil: somebody is

	woken bool // the head should make an attempt

	held  HeldError // the last answer of the store; Key is empty if nobody knows
	until time.Time // when the lease in the way ends; zero: unknown
	local bool      // this Client holds that lease, and wakes the line when it ends

	fault    error // of the attempts since the store last answered; nil: it has answered
	failures int   // how many they are
	failedAt time.Time

	handed *grant // handed over to the head, which has not taken it yet

	watch watch
}

// watch is how the store wakes a line. The mutex of the lines guards it.
type watch struct {
	begun   bool          // the store was asked to wake the line
	active  bool          // it has said that it will
	polling bool          // it cannot wake anybody
	waiter  string        // the name under which the store wakes the line
	ctx     *watchContext // of the present watch
	failed  error         // until the head has read it
	refusal error         // why there is no watch, for all in the line
}

// waiter is a call behind the head.
type waiter struct {
	turn  chan struct{} // closed when it becomes the head, or may join the head that was
	ttl   time.Duration
	joins bool   // it may join: set before turn is closed
	place uint64 // in line: smaller is earlier
}

// enter joins the line, at its end if place is 0. It returns no waiter if the caller is its head.
func (ls *lines) enter(key, owner string, ttl time.Duration, place uint64) (*line, *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.find(key, owner)
	switch {
	case ln != nil && ln.idle != nil:
		ln.resume(ttl)
		return ln, nil
	case ln != nil:
		if place == 0 {
			ln.last++
			place = ln.last
		}
		wt := &waiter{turn: make(chan struct{}), ttl: ttl, place: place}
		i, _ := slices.BinarySearchFunc(ln.queue, place, func(wt *waiter, place uint64) int { return cmp.Compare(wt.place, place) })
		ln.queue = slices.Insert(ln.queue, i, wt)
		return ln, wt
	}
	if ln, _ = ls.spare.Get().(*line); ln == nil {
		ln = &line{signal: make(chan struct{}, 1)}
	}
	ln.key, ln.owner, ln.other, ln.ttl = key, owner, ls.byKey[key], ttl
	if ls.byKey == nil {
		ls.byKey = make(map[string]*line)
	}
	ls.byKey[key] = ln
	return ln, nil
}

// find is the line for key and owner, or nil.
func (ls *lines) find(key, owner string) *line {
	ln := ls.byKey[key]
	for ln != nil && ln.owner != owner {
		ln = ln.other
	}
	return ln
}

// resume gives a line that was kept a head.
func (ln *line) resume(ttl time.Duration) {
	ln.idle.Stop()
	ln.idle, ln.ttl = nil, ttl
	ln.calm() // no head was there to be woken
	if !ln.local {
		ln.held, ln.until = HeldError{}, time.Time{}
	}
}

// turn begins an attempt of the head. It returns the lease that was handed over to the head, if
// any. Otherwise it returns the name under which an active watch wakes the line, and whether the
// attempt joins the lease of the head before.
func (ls *lines) turn(ln *line) (handed *grant, waiter string, joins bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	handed, ln.busy = ln.takeHanded(), true
	joins, ln.joins = ln.joins, false
	ln.late = joins || handed != nil
	switch {
	case handed == nil && ln.watch.active:
		waiter = ln.watch.waiter
	case handed != nil && ln.held.Position > 0: // leave the queue of the store
		ln.unwatch()
	}
	return handed, waiter, joins
}

// note keeps the error of an attempt of the head: the lock is held, or the store failed.
func (ls *lines) note(ln *line, err error) {
	held := asHeld(ln.key, err)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.busy = false
	if held == nil {
		ln.fault = err
		ln.failures++
		ln.failedAt = time.Now()
		return
	}
	ln.fault, ln.failures = nil, 0
	ln.held, ln.until, ln.local = *held, time.Time{}, false
	if held.Left > 0 {
		ln.until = time.Now().Add(held.Left)
	}
}

// leave makes the next waiter the head. If the head leaves with a lease, the next one knows that
// the lock is held. A lease that was handed over to a head which leaves without it goes to the next
// head; if there is none, leave returns it.
func (ls *lines) leave(ln *line, lease contract.Lease, granted bool) (unwanted *grant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.busy = false
	switch {
	case granted && shared(lease): // the next one may be granted the lock as well, also when others release it
		ln.held, ln.until, ln.local = HeldError{}, time.Time{}, false
	case granted:
		ln.held = HeldError{Key: ln.key}
		ln.until, ln.local = lease.Expires, true
		ln.calm() // the wake-up led to this grant
	}
	if granted {
		ln.fault, ln.failures = nil, 0
	}
	if len(ln.queue) > 0 {
		if !granted {
			ln.wake() // the head may have left with a wake-up that it did not use
		}
		ln.joins = granted && lease.Room != 0 && !ln.late
		ln.ttl = ln.queue[0].ttl
		close(ln.queue[0].turn)
		ln.queue = slices.Delete(ln.queue, 0, 1)
		if ln.joins {
			ln.letJoin(lease.Room - 1)
		}
		return nil
	}
	unwanted = ln.takeHanded()
	if granted && ln.watch.active {
		ln.idle = time.AfterFunc(lingering, func() { ls.end(ln) })
		return unwanted
	}
	ls.remove(ln)
	if ln.watch.begun {
		ln.watch.ctx.cancel() // a late wake-up of this watch must find this line, so the line is not used again
		return unwanted
	}
	*ln = line{signal: ln.signal, queue: ln.queue}
	ls.spare.Put(ln)
	return unwanted
}

// letJoin lets so many waiters out of the line, or all if room is negative. Each makes one attempt,
// and comes back to its place if that is refused.
func (ln *line) letJoin(room int) {
	if room < 0 || room > len(ln.queue) {
		room = len(ln.queue)
	}
	for _, wt := range ln.queue[:room] {
		wt.joins = true
		close(wt.turn)
	}
	ln.queue = slices.Delete(ln.queue, 0, room)
}

// lingering is how long a line that was watched is kept after the last waiter in it got the lock.
// The next call then need not begin a watch, and enters the queue of the store with its first
// attempt: bench/regress/mechanisms.md.
const lingering = 200 * time.Millisecond

// end removes a line that no call has joined again.
func (ls *lines) end(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln.idle == nil {
		return
	}
	ln.idle = nil
	ls.remove(ln)
	ln.watch.ctx.cancel()
}

// quit leaves the line from behind the head. It returns what the line knew, with the position.
func (ls *lines) quit(ln *line, wt *waiter) (held *HeldError, unwanted *grant, fault error) {
	ls.mu.Lock()
	i := slices.Index(ln.queue, wt)
	if i >= 0 {
		ln.queue = slices.Delete(ln.queue, i, i+1)
	}
	held, fault = ln.holder(), ln.fault
	head := i < 0 && !wt.joins // it has just become the head
	ls.mu.Unlock()
	if held != nil {
		held.Position += i + 1
	}
	if head {
		unwanted = ls.leave(ln, contract.Lease{}, false)
	}
	return held, unwanted, fault
}

func (ls *lines) remove(ln *line) {
	first := ls.byKey[ln.key]
	if first == ln {
		if ln.other == nil {
			delete(ls.byKey, ln.key)
		} else {
			ls.byKey[ln.key] = ln.other
		}
		return
	}
	for ; first != nil; first = first.other {
		if first.other == ln {
			first.other = ln.other
			return
		}
	}
}

// knowledge is what a line knows at one moment.
type knowledge struct {
	held     *HeldError // nil: nobody knows
	timed    bool       // held says when the lease in the way ends
	fault    error
	failures int
	failedAt time.Time
	polls    bool // no watch wakes the line
	refusal  error
}

func (ls *lines) know(ln *line) knowledge {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return knowledge{
		held: ln.holder(), timed: !ln.until.IsZero(), fault: ln.fault, failures: ln.failures, failedAt: ln.failedAt,
		polls: ln.watch.polling || !ln.watch.begun, refusal: ln.watch.refusal,
	}
}

// holder is what the line knows of the holder, or nil. The mutex is held.
func (ln *line) holder() *HeldError {
	if ln.held.Key == "" {
		return nil
	}
	held := ln.held
	if !ln.until.IsZero() {
		held.Left = max(time.Until(ln.until), 0)
	}
	held.Position = max(held.Position, 1) // in the store's queue
	return &held
}

// beginWatch returns the ctx and the waiter of a new watch, unless the line has one. It begins none
// while the store fails, since the head ignores wake-ups then, and none for keys shared with other
// software: a waiter that is woken would win every time. The ctx ends with the line, which outlives
// its heads.
func (ls *lines) beginWatch(ln *line) (ctx context.Context, waiter string, begin bool) {
	if ls.shared {
		return nil, "", false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln.watch.begun || ln.fault != nil {
		return nil, "", false
	}
	ln.watch.begun, ln.watch.ctx, ln.watch.waiter = true, &watchContext{}, ls.holder.token()
	return ln.watch.ctx, ln.watch.waiter, true
}

// watched is called when the watch is active. The lock may have been released before, so it wakes.
func (ls *lines) watched(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.watch.active = true
	ln.wake()
}

// watchFailed is called when there is no watch.
func (ls *lines) watchFailed(ln *line, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.watch.failed = err
	ln.alert()
}

// poll notes that the store cannot wake anybody.
func (ls *lines) poll(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.watch.polling = true
}

// refuse keeps the error of the watch for the next heads.
func (ls *lines) refuse(ln *line, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.watch.refusal = err
}

// forgetWatch ends a watch that has failed, so that the head can begin another.
func (ls *lines) forgetWatch(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.unwatch()
}

func (ln *line) unwatch() {
	ln.watch.ctx.cancel()
	ln.watch.begun, ln.watch.active = false, false
}

// offer hands the lease over to the head of its line, if that sleeps and the lease is long enough for
// it. A head with an attempt under way takes none: if the attempt hangs, the key would stay locked.
func (ls *lines) offer(lease *grant) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.find(lease.Key, "")
	if ln == nil || ln.idle != nil || ln.busy || ln.handed != nil || time.Until(lease.Expires) <= ln.ttl/2 {
		return false
	}
	ln.handed = lease
	ln.wake()
	return true
}

// takeHanded takes the lease that was handed over to the head. The mutex is held.
func (ln *line) takeHanded() (handed *grant) {
	handed, ln.handed = ln.handed, nil
	return handed
}

// wokenByStore wakes the line, unless this Client holds the lock: then the store reports the
// release before.
func (ls *lines) wokenByStore(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ln.local {
		ln.wake()
	}
}

// freed wakes the heads of all lines for key: a lease that this Client held is over.
func (ls *lines) freed(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for ln := ls.byKey[key]; ln != nil; ln = ln.other {
		ln.local = false
		ln.wake()
	}
	if ls.shared {
		ls.restFrom(key)
	}
}

// signalled reads what the head was signalled for: a wake-up, an error of the watch, or both. While
// the store fails, a wake-up does not count: a store that comes back wakes all waiters, and their
// attempts would arrive at one instant.
func (ls *lines) signalled(ln *line) (woken bool, failed error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	woken, failed = ln.woken && (ln.fault == nil || ln.handed != nil), ln.watch.failed
	ln.woken, ln.watch.failed = false, nil
	return woken, failed
}

func (ln *line) wake() {
	ln.woken = true
	ln.alert()
}

func (ln *line) alert() {
	select {
	case ln.signal <- struct{}{}:
	default: // it has one already
	}
}

// calm takes back a wake-up that the head has not read.
func (ln *line) calm() { ln.woken = false }

// inLine is how many calls wait in the line.
func (ls *lines) inLine(ln *line) int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return 1 + len(ln.queue)
}

func (ls *lines) count(key string) (n int) {
	for ln := ls.byKey[key]; ln != nil; ln = ln.other {
		n += 1 + len(ln.queue)
	}
	return n
}

// restFrom leaves the key to others for one interval. The mutex is held.
func (ls *lines) restFrom(key string) {
	if ls.rests == nil {
		ls.rests = map[string]time.Time{}
	}
	d := sharing(ls.count(key), rand.Float64())
	ls.rests[key] = time.Now().Add(d)
	time.AfterFunc(d, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if !time.Now().Before(ls.rests[key]) { // else it was released again
			delete(ls.rests, key)
		}
	})
}

// rest is how long this Client still leaves the key to others.
func (ls *lines) rest(key string) time.Duration {
	if !ls.shared {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	until, rests := ls.rests[key]
	if !rests {
		return 0
	}
	return max(time.Until(until), 0)
}
