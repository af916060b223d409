package locker

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// lines are the waiters of one Client. The waiters for one key and owner stand in a line, and only
// the head of a line talks to the store. So a release that a hundred goroutines wait for costs one
// attempt, and they get the lock in the order in which they asked for it. If the head is granted a
// lease that has room for others, they are let out of the line together, one attempt each.
//
// What a line does is decided in line.go. Here stand the mutex, the map, the timers and the channels.
type lines struct {
	mu    sync.Mutex // guards the lines as well
	byKey map[string]*line
	// lines that have ended, for the next caller: bench/regress/mechanisms.md
	spare sync.Pool

	otherSoftware bool                 // takes the same locks: see WithOtherSoftware; set by New, as holder is
	holder        holder               // in tokens and the names of waiters
	rests         map[string]time.Time // until when this Client leaves a key that it has released to others
}

// line is a head, which is not in queue, and the waiters behind it.
//
// A head whose attempt hangs keeps its line waiting until the attempt has reached its limit: the next
// waiter would only hang as well, and each waiter leaves with its own ctx.
type line struct {
	key, owner string        // do not change while a call is in the line
	signal     chan struct{} // holds one signal for the head

	// guarded by the mutex of the lines
	state lineState
	watch *watchContext // of the present watch; nil: none
	queue []*waiter
	last  uint64      // number that was given out
	idle  *time.Timer // ends a line that is kept though nobody is in it; nil: somebody is
	other *line       // the line of another owner for the same key
}

// waiter is a call behind the head.
type waiter struct {
	turn   chan struct{} // closed when it becomes the head, or may join the head that was
	ttl    time.Duration
	joins  bool   // it may join: set before turn is closed
	number uint64 // smaller is earlier in line
}

// enter joins the line, at its end if number is 0. It returns no waiter if the caller is its head.
func (ls *lines) enter(key, owner string, ttl time.Duration, number uint64) (*line, *waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.find(key, owner)
	if ln == nil {
		ln = ls.add(key, owner)
	}
	if !ls.step(ln, &lineEvent{is: onEnter, ttl: ttl}).queue {
		return ln, nil
	}
	if number == 0 {
		ln.last++
		number = ln.last
	}
	wt := &waiter{turn: make(chan struct{}), ttl: ttl, number: number}
	i, _ := slices.BinarySearchFunc(ln.queue, number, func(wt *waiter, number uint64) int { return cmp.Compare(wt.number, number) })
	ln.queue = slices.Insert(ln.queue, i, wt)
	return ln, wt
}

// quit leaves the line from behind the head. It returns what the line knew, with the position, or
// nothing for a call that had just been let out to join the lease of the head.
func (ls *lines) quit(ln *line, wt *waiter) (held *HeldError, unwanted *grant, fault error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	i := slices.Index(ln.queue, wt)
	if i < 0 && wt.joins { // it may try by itself. The line may have ended, and stand for another key by now
		return nil, nil, nil
	}
	held, fault = ln.state.holder(ln.key, time.Now()), ln.state.fault
	if held != nil {
		held.Position += i + 1
	}
	switch {
	case i >= 0:
		ln.queue = slices.Delete(ln.queue, i, i+1)
	default: // it has just become the head
		unwanted = ls.step(ln, &lineEvent{is: onLeave}).lease
	}
	return held, unwanted, fault
}

// freed wakes the heads of all lines for key: a lease that this Client held is over.
func (ls *lines) freed(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for ln := ls.byKey[key]; ln != nil; ln = ln.other {
		ls.step(ln, &lineEvent{is: onFreed})
	}
	if ls.otherSoftware {
		ls.restFrom(key)
	}
}

// offer hands the lease over to the head of its line, if that sleeps and the lease is long enough for
// it.
func (ls *lines) offer(lease *grant) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.find(lease.Key, "")
	return ln != nil && ls.step(ln, &lineEvent{is: onOffer, lease: lease, at: time.Now()}).signal
}

// tell tells the line of an event, and does what the line decides.
func (ls *lines) tell(ln *line, e *lineEvent) lineAction {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.step(ln, e)
}

// step is tell while the mutex is held. A watch that has ended says nothing.
func (ls *lines) step(ln *line, e *lineEvent) (a lineAction) {
	if e.watch != nil && e.watch != ln.watch {
		return a
	}
	if e.is == onAttempt && ls.otherSoftware {
		e.rests = time.Now().Before(ls.rests[ln.key])
	}
	if e.behind = len(ln.queue); e.behind > 0 {
		e.next = ln.queue[0].ttl
	}
	a = ln.state.step(e)
	if a.named {
		a.waiter = ln.watch.waiter
	}
	if ln.idle != nil && ln.state.head != absent { // a call has joined the line again
		ln.idle.Stop()
		ln.idle = nil
	}
	if a.signal {
		select {
		case ln.signal <- struct{}{}:
		default: // it has one already
		}
	}
	if a.promote {
		ln.next(a.join)
	}
	if a.beginWatch {
		ln.watch = &watchContext{waiter: ls.holder.token()}
	}
	if a.linger {
		ls.linger(ln)
	}
	if a.remove {
		ls.remove(ln)
	}
	if a.endWatch {
		ln.watch.cancel()
		ln.watch = nil
	}
	return a
}

// next makes the first waiter the head, and lets so many behind it out of the line, or all if joining
// is negative. Each makes one attempt, and comes back with its number if the lock is held.
func (ln *line) next(joining int) {
	out := 1 + joining
	if joining < 0 || out > len(ln.queue) {
		out = len(ln.queue)
	}
	for i, wt := range ln.queue[:out] {
		wt.joins = i > 0
		close(wt.turn)
	}
	ln.queue = slices.Delete(ln.queue, 0, out)
}

// lingering is how long a line that was watched is kept after the last waiter in it got the lock.
// The next call then need not begin a watch, and enters the queue of the store with its first
// attempt: bench/regress/mechanisms.md.
const lingering = 200 * time.Millisecond

func (ls *lines) linger(ln *line) {
	var idle *time.Timer
	idle = time.AfterFunc(lingering, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if ln.idle == idle {
			ln.idle = nil
			ls.step(ln, &lineEvent{is: onLingered})
		}
	})
	ln.idle = idle
}

// find is the line for key and owner, or nil.
func (ls *lines) find(key, owner string) *line {
	ln := ls.byKey[key]
	for ln != nil && ln.owner != owner {
		ln = ln.other
	}
	return ln
}

func (ls *lines) add(key, owner string) *line {
	ln, _ := ls.spare.Get().(*line)
	if ln == nil {
		ln = &line{signal: make(chan struct{}, 1)}
	}
	ln.key, ln.owner, ln.other = key, owner, ls.byKey[key]
	if ls.byKey == nil {
		ls.byKey = make(map[string]*line)
	}
	ls.byKey[key] = ln
	return ln
}

// remove also keeps the line for the next caller. It does not keep one that has a watch: the store
// may refer to that line until its watch has ended.
func (ls *lines) remove(ln *line) {
	first := ls.byKey[ln.key]
	switch {
	case first != ln:
		for first.other != ln {
			first = first.other
		}
		first.other = ln.other
	case ln.other == nil:
		delete(ls.byKey, ln.key)
	default:
		ls.byKey[ln.key] = ln.other
	}
	if ln.watch == nil {
		*ln = line{signal: ln.signal, queue: ln.queue}
		ls.spare.Put(ln)
	}
}

// look is the state of the line at this moment.
func (ls *lines) look(ln *line) lineState {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ln.state
}

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
	waiters := ls.count(key)
	d := sharing(waiters, rand.Float64())
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
	if !ls.otherSoftware {
		return 0
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return max(time.Until(ls.rests[key]), 0) // a key that does not rest has the zero time
}
