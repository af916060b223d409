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
}

// A Turn is one waiter.
type Turn struct {
	Key, Waiter string
	Wake        func()

	member string      // what the queue may have of the waiter; empty: it has no position
	later  *time.Timer // to look whether the reservation before it was taken
}

// Add adds a waiter that watches its key.
func (ts *Turns) Add(t *Turn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.byWaiter == nil {
		ts.byWaiter = map[string]*Turn{}
	}
	ts.byWaiter[t.Waiter] = t
}

// Find returns the turn of a waiter, or nil.
func (ts *Turns) Find(waiter string) *Turn {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byWaiter[waiter]
}

// HasNoPosition tells whether the waiter watches the key and can't have a position in its queue.
func (ts *Turns) HasNoPosition(key, waiter string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
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

// Asked notes the answer to an attempt. It tells whether the waiter still watches, or has the lock.
// If not, nobody will use its position.
func (ts *Turns) Asked(t *Turn, granted bool) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if granted { // so it has no position any more
		t.member = ""
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
	if ts.byWaiter[t.Waiter] != t {
		return ""
	}
	delete(ts.byWaiter, t.Waiter)
	return t.member
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
