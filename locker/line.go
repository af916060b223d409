package locker

import (
	"context"
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
	spare *line // a line nobody else ever joined, for the next one
}

// line is a head, who is not in queue, and those behind it. What the head finds out stays with the line, so that the
// next head goes on where the last one stopped.
type line struct {
	key, owner string
	other      *line // the line of another owner for the same key

	queue []*place
	hint  chan struct{} // holds one wake for the head

	watching  bool
	polling   bool       // the store can't wake anybody
	failed    chan error // has the error of a watch that failed
	refusal   error      // why there is no watch, for all in the line
	stopWatch context.CancelFunc

	held  HeldError // what the store said last; Key is empty if nobody knows
	until time.Time // when the lease that is in the way ends; zero: unknown
	local bool      // that lease is held by this Client, which will tell when it ends
}

type place struct {
	turn chan struct{} // closed when the place becomes the head
}

// enter joins the line. Without a place to wait in, the caller is its head.
func (ls *lines) enter(key, owner string) (*line, *place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for ln := ls.byKey[key]; ln != nil; ln = ln.other {
		if ln.owner == owner {
			p := &place{turn: make(chan struct{})}
			ln.queue = append(ln.queue, p)
			return ln, p
		}
	}
	ln := ls.spare
	if ls.spare = nil; ln == nil {
		ln = &line{hint: make(chan struct{}, 1)}
	}
	ln.key, ln.owner, ln.other = key, owner, ls.byKey[key]
	if ls.byKey == nil {
		ls.byKey = make(map[string]*line)
	}
	ls.byKey[key] = ln
	return ln, nil
}

// leave gives the line to the next in it. If the head leaves with a lease, the next one knows that the lock is held.
func (ls *lines) leave(ln *line, lease Lease, granted bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case granted && ln.owner != "": // whoever follows is the same owner, and may be granted it as well
		ln.held, ln.until, ln.local = HeldError{}, time.Time{}, false
	case granted:
		ln.held = HeldError{Key: ln.key}
		ln.until, ln.local = lease.Expires, true
		ln.calm() // what led to this grant is no news for the next head
	}
	if len(ln.queue) > 0 {
		if !granted {
			ln.wake() // it may have left with a wake that it made no use of
		}
		close(ln.queue[0].turn)
		ln.queue = slices.Delete(ln.queue, 0, 1)
		return
	}
	ls.remove(ln)
	if ln.watching {
		ln.stopWatch() // a late wake of an old watch must find the old line, so this one is not used again
		return
	}
	ln.calm()
	*ln = line{hint: ln.hint, queue: ln.queue}
	ls.spare = ln
}

// quit leaves from a place behind the head and says which it was and what the line knew.
func (ls *lines) quit(ln *line, p *place) (held *HeldError) {
	ls.mu.Lock()
	i := slices.Index(ln.queue, p)
	if i >= 0 {
		ln.queue = slices.Delete(ln.queue, i, i+1)
	}
	held = ln.lastLocked()
	ls.mu.Unlock()
	if held != nil {
		held.Position = i + 2
	}
	if i < 0 { // it has just become the head
		ls.leave(ln, Lease{}, false)
	}
	return held
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

// refused notes what the store told the head.
func (ls *lines) refused(ln *line, held *HeldError) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.held, ln.until, ln.local = *held, time.Time{}, false
	if held.Left > 0 {
		ln.until = time.Now().Add(held.Left)
	}
}

// last is what the line knows of the holder, or nil.
func (ls *lines) last(ln *line) *HeldError {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ln.lastLocked()
}

func (ln *line) lastLocked() *HeldError {
	if ln.held.Key == "" {
		return nil
	}
	held := ln.held
	if !ln.until.IsZero() {
		held.Left = max(time.Until(ln.until), 0)
	}
	held.Position = 1
	return &held
}

// freed wakes the heads of all lines for key: a lease that this Client held is over.
func (ls *lines) freed(key string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for ln := ls.byKey[key]; ln != nil; ln = ln.other {
		ln.local = false
		ln.wake()
	}
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
	ln.wake()
}

func (ln *line) wake() {
	select {
	case ln.hint <- struct{}{}:
	default: // it has one already
	}
}

// calm takes back a wake that the head has not noticed.
func (ln *line) calm() {
	select {
	case <-ln.hint:
	default:
	}
}
