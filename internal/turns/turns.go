// Package turns keeps the waiters of a store that watch a key, and notes which of them may have a
// position in its queue on the server.
package turns

import (
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Turns are the waiters of a store. Ready to use when zero.
type Turns struct {
	mu       sync.Mutex
	byWaiter map[string]*Turn
	byKey    map[string]*Turn // the latest for each key
	empty    map[string]bool  // of these keys: the last release here has found nobody in the queue
}

// A Turn is one waiter.
type Turn struct {
	Key, Waiter string
	Wake        func()

	member string      // what the queue may have of the waiter; empty: it has no position
	placed bool        // the server has said that it has a position, and no message was missed since
	later  *time.Timer // to look whether the reservation before it was taken

	before, after *Turn // of the same key
}

// Add adds a waiter that watches its key.
func (ts *Turns) Add(t *Turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.byWaiter == nil {
		ts.byWaiter, ts.byKey, ts.empty = map[string]*Turn{}, map[string]*Turn{}, map[string]bool{}
	}
	ts.byWaiter[t.Waiter] = t
	if t.before = ts.byKey[t.Key]; t.before != nil {
		t.before.after = t
	}
	ts.byKey[t.Key] = t
}

// Find returns the turn of a waiter, or nil.
func (ts *Turns) Find(waiter string) *Turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byWaiter[waiter]
}

// FoundEmpty notes that a release has found nobody in the queue of key. Keys that nobody watches are
// not noted, so the notes are bounded by the watches.
func (ts *Turns) FoundEmpty(key string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.byKey[key] != nil {
		ts.empty[key] = true
	}
}

// LikelyFree tells whether the key is likely to be free for the waiter, which makes an attempt. It is
// so for the first attempt after a release that found the queue empty. A waiter that may have a
// position, or does not watch the key, goes by the queue.
func (ts *Turns) LikelyFree(key, waiter string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if !ts.empty[key] {
		return false
	}
	delete(ts.empty, key)
	t := ts.byWaiter[waiter]
	return t != nil && t.Key == key && t.member == ""
}

// Ask returns the turn of a waiter before its attempt, in which the queue may get member, or nil if
// nobody watches the key for it.
func (ts *Turns) Ask(key, waiter, member string) *Turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.byWaiter[waiter]
	if t == nil || t.Key != key {
		return nil
	}
	t.member = member
	return t
}

// IsPlaced tells whether the waiter must still have the position that it had.
func (ts *Turns) IsPlaced(t *Turn) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return t != nil && t.placed
}

// Placed notes that the server has given the waiter a position, or that it is not known any more whether
// it has one.
func (ts *Turns) Placed(t *Turn, is bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.placed = is
}

// Missed notes that messages for the waiter may have been missed, and wakes it. Its position may be
// lost, and the others look anyway, or will be told by another waiter.
func (ts *Turns) Missed(t *Turn) {
	ts.Placed(t, false)
	t.Wake()
}

// Lost wakes the waiters for a key whose queue was lost, other than the waiter that has found out.
func (ts *Turns) Lost(key, waiter string) {
	ts.mu.Lock()
	var wakes []func()
	for t := ts.byKey[key]; t != nil; t = t.before {
		if t.Waiter != waiter {
			t.placed = false
			wakes = append(wakes, t.Wake)
		}
	}
	ts.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

// Asked notes the answer to an attempt. It tells whether the waiter still watches, or has the lock.
// If not, nobody will use its position.
func (ts *Turns) Asked(t *Turn, granted bool) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if granted { // so it has no position any more
		t.member, t.placed = "", false
		t.look(nil)
	}
	return granted || ts.byWaiter[t.Waiter] == t
}

// LookLater wakes t when the reservation of the waiter before it is over.
func (ts *Turns) LookLater(t *Turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.look(time.AfterFunc(backends.Reservation+time.Millisecond, t.Wake))
}

func (t *Turn) look(later *time.Timer) {
	if t.later != nil {
		t.later.Stop()
	}
	t.later = later
}

// Remove removes t, and returns what the queue may still have of it, empty for nothing.
func (ts *Turns) Remove(t *Turn) (member string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.look(nil)
	ts.leaveKey(t)
	if ts.byWaiter[t.Waiter] != t {
		return ""
	}
	delete(ts.byWaiter, t.Waiter)
	return t.member
}

func (ts *Turns) leaveKey(t *Turn) {
	switch {
	case t.after != nil:
		t.after.before = t.before
	case t.before != nil:
		ts.byKey[t.Key] = t.before
	default:
		delete(ts.byKey, t.Key)
		delete(ts.empty, t.Key)
	}
	if t.before != nil {
		t.before.after = t.after
	}
}

// WakeAll wakes all waiters: messages for them may have been missed.
func (ts *Turns) WakeAll() {
	ts.mu.Lock()
	var wakes []func()
	for _, t := range ts.byWaiter {
		wakes = append(wakes, t.Wake)
	}
	ts.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}
