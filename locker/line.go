package locker

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// lines are the waiters of one Client: those for one key and owner stand in a line, and only the head of a line talks
// to the store. So a release that a hundred goroutines wait for costs one attempt, and they get the lock in the order
// in which they asked for it.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*line
	spare sync.Pool // lines that nobody else ever joined, for the next ones

	shared bool                 // with other software: see WithSharedKeys
	rests  map[string]time.Time // until when a key is not asked for, since this Client has just released it
}

// line is a head, who is not in queue, and those behind it. What the head finds out stays with the line, so that the
// next head goes on where the last one stopped.
type line struct {
	key, owner string
	other      *line // the line of another owner for the same key

	queue []*place
	hint  chan struct{} // holds one signal for the head
	woken bool          // it should ask

	watching bool
	waiter   string             // for whom the store is watched
	watched  bool               // the watch is active
	polling  bool               // the store can't wake anybody
	failed   error              // what the watch failed with, until the head has heard of it
	refusal  error              // why there is no watch, for all in the line
	endWatch context.CancelFunc // ends the present watch
	ttl      time.Duration      // that its head asks for
	asking   bool               // the head has an attempt under way, or was handed a lease: it takes none
	gift     *Lease             // handed to the head, which has not taken it yet
	stale    int                // handovers whose release notification is still pending
	idle     *time.Timer        // set while nobody is in the line, and it is kept for who may come

	fault    error // what the attempts failed with since the store last answered; nil: it has answered
	failures int   // how many they are
	failedAt time.Time

	held  HeldError // what the store said last; Key is empty if nobody knows
	until time.Time // when the lease that is in the way ends; zero: unknown
	local bool      // that lease is held by this Client, which will tell when it ends

	freed  bool // this Client has released the lock since it was last heard of
	rivals int  // grants until others are forgotten who were seen to want it
}

// rivalry is how many grants it takes to forget others.
const rivalry = 4

type place struct {
	turn chan struct{} // closed when the place becomes the head
	ttl  time.Duration
}

// enter joins the line. Without a place to wait in, the caller is its head.
func (ls *lines) enter(key, owner string, ttl time.Duration) (*line, *place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.find(key, owner)
	switch {
	case ln != nil && ln.idle != nil:
		ln.resume(ttl)
		return ln, nil
	case ln != nil:
		p := &place{turn: make(chan struct{}), ttl: ttl}
		ln.queue = append(ln.queue, p)
		return ln, p
	}
	if ln, _ = ls.spare.Get().(*line); ln == nil {
		ln = &line{hint: make(chan struct{}, 1)}
	}
	ln.key, ln.owner, ln.other, ln.ttl = key, owner, ls.byKey[key], ttl
	if ls.byKey == nil {
		ls.byKey = make(map[string]*line)
	}
	ls.byKey[key] = ln
	return ln, nil
}

// leave gives the line to the next in it. If the head leaves with a lease, the next one knows that
// the lock is held. A lease that was handed to a head that leaves without it goes to the next head;
// if there is none, it is returned.
func (ls *lines) leave(ln *line, lease Lease, granted bool) (unwanted *Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.asking = false
	switch {
	case granted && ln.owner != "": // whoever follows is the same owner, and may be granted it as well
		ln.held, ln.until, ln.local = HeldError{}, time.Time{}, false
	case granted:
		ln.held = HeldError{Key: ln.key}
		ln.until, ln.local = lease.Expires, true
		ln.calm() // what led to this grant is no news for the next head
	}
	if granted {
		ln.freed, ln.fault, ln.failures = false, nil, 0
		if lease.hand == 0 { // a handover says nothing of others
			ln.rivals = max(ln.rivals-1, 0)
		}
	}
	if len(ln.queue) == 0 {
		unwanted = ln.unwrap()
	}
	if len(ln.queue) > 0 {
		if !granted {
			ln.wake() // it may have left with a wake that it made no use of
		}
		ln.ttl = ln.queue[0].ttl
		close(ln.queue[0].turn)
		ln.queue = slices.Delete(ln.queue, 0, 1)
		return unwanted
	}
	if granted && ln.watched {
		ln.idle = time.AfterFunc(lingering, func() { ls.end(ln) })
		return unwanted
	}
	ls.remove(ln)
	if ln.watching {
		ln.endWatch() // a late wake of an old watch must find the old line, so this one is not used again
		return unwanted
	}
	*ln = line{hint: ln.hint, queue: ln.queue}
	ls.spare.Put(ln)
	return unwanted
}

// lingering is how long a line that had to wait is kept when the last one in it was granted the lock. Where a lock is asked for
// again and again, the next one need not ask the store to be woken, and stands in its queue with the first attempt.
const lingering = 200 * time.Millisecond

// find is the line for key and owner, or nil.
func (ls *lines) find(key, owner string) *line {
	ln := ls.byKey[key]
	for ln != nil && ln.owner != owner {
		ln = ln.other
	}
	return ln
}

// resume makes whoever comes the head of a line that was kept.
func (ln *line) resume(ttl time.Duration) {
	ln.idle.Stop()
	ln.idle, ln.ttl = nil, ttl
	ln.calm() // it was for nobody
	if !ln.local {
		ln.held, ln.until = HeldError{}, time.Time{}
	}
}

// end is for a line that nobody has come back to.
func (ls *lines) end(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln.idle == nil {
		return
	}
	ln.idle = nil
	ls.remove(ln)
	ln.endWatch()
}

// turn begins an attempt of the head. It returns the lease that was handed to the head; or else the
// waiter for whom the store is watched, if it is, and whether the lock is likely to be free.
func (ls *lines) turn(ln *line) (gift *Lease, waiter string, free bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	gift, ln.asking = ln.unwrap(), true
	switch {
	case gift == nil && ln.watched:
		waiter, free = ln.waiter, ln.freed && ln.rivals == 0
	case gift != nil && ln.held.Position > 0: // in the queue of the store, where it waits no more
		ln.endWatch()
		ln.watching, ln.watched = false, false
	}
	return gift, waiter, free
}

// quit leaves from a place behind the head and says which it was and what the line knew.
func (ls *lines) quit(ln *line, p *place) (held *HeldError, unwanted *Lease, fault error) {
	ls.mu.Lock()
	i := slices.Index(ln.queue, p)
	if i >= 0 {
		ln.queue = slices.Delete(ln.queue, i, i+1)
	}
	held, fault = ln.lastLocked(), ln.fault
	ls.mu.Unlock()
	if held != nil {
		held.Position += i + 1
	}
	if i < 0 { // it has just become the head
		unwanted = ls.leave(ln, Lease{}, false)
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

// note keeps what an attempt of the head ended with: that the lock is held, or that the store failed.
func (ls *lines) note(ln *line, err error) {
	held := asHeld(ln.key, err)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if held == nil {
		ln.fault, ln.asking = err, false
		ln.failures++
		ln.failedAt = time.Now()
		return
	}
	ln.fault, ln.failures = nil, 0
	ln.held, ln.until, ln.local = *held, time.Time{}, false
	ln.freed, ln.rivals = false, rivalry
	ln.asking = false
	if held.Left > 0 {
		ln.until = time.Now().Add(held.Left)
	}
}

// last is what the line knows of the holder, or nil, and what the store has failed with since it
// last answered.
func (ls *lines) last(ln *line) (held *HeldError, fault error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ln.lastLocked(), ln.fault
}

// failures is how often the store has failed since it last answered, and when it did so last.
func (ls *lines) failures(ln *line) (n int, last time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ln.failures, ln.failedAt
}

func (ln *line) lastLocked() *HeldError {
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

// freed wakes the heads of all lines for key: a lease that this Client held is over.
func (ls *lines) freed(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for ln := ls.byKey[key]; ln != nil; ln = ln.other {
		if ln.stale > 0 {
			ln.stale--
			continue
		}
		ln.local, ln.freed = false, true
		ln.wake()
	}
	if ls.shared {
		ls.restLocked(key)
	}
}

// restLocked leaves the key to others for one interval.
func (ls *lines) restLocked(key string) {
	if ls.rests == nil {
		ls.rests = map[string]time.Time{}
	}
	d := sharing(rand.Float64())
	ls.rests[key] = time.Now().Add(d)
	time.AfterFunc(d, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if !time.Now().Before(ls.rests[key]) { // else it was released again
			delete(ls.rests, key)
		}
	})
}

// rest is how long the key is still left to others.
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

// woken passes on what the store's Watch says, except while this Client itself holds the lock: then it is the echo of
// the release before.
func (ls *lines) woken(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !ln.local {
		ln.wake()
	}
}

// watched is called when the watch is active: the lock may have been released before.
func (ls *lines) watched(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.watched = true
	ln.wake()
}

// failed is called when there is no watch.
func (ls *lines) failed(ln *line, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.failed = err
	ln.signal()
}

// heard is what the head was signalled: that it should ask, or what the watch has failed with, or
// both. While the store fails, a wake is no reason to ask sooner: when it is back it wakes
// everybody, and they would come at one instant.
func (ls *lines) heard(ln *line) (woken bool, failed error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	woken, failed = ln.woken && (ln.fault == nil || ln.gift != nil), ln.failed
	ln.woken, ln.failed = false, nil
	return woken, failed
}

// unwatch forgets a watch that has failed, so that the store can be asked again.
func (ls *lines) unwatch(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.endWatch()
	ln.watching, ln.watched = false, false
}

func (ln *line) wake() {
	ln.woken = true
	ln.signal()
}

func (ln *line) signal() {
	select {
	case ln.hint <- struct{}{}:
	default: // it has one already
	}
}

// calm takes back a wake that the head has not noticed.
func (ln *line) calm() { ln.woken = false }
