package backends

import (
	"context"
	"time"
)

// A QueuedStore keeps a queue of waiters beside each key, so that a release wakes one waiter and
// not all. A key that is released while a waiter is in the queue is not free. It is reserved, for
// [Reservation], for the first waiter that can be told. Only SetNXQueued for that waiter takes it
// then. For all other calls the key is held. A reservation that is not taken ends, and then the key
// is free for any caller.
//
// So a waiter that is dead, frozen, or not reached by its wake-up costs the others at most one
// reservation. It has lost its position by then.
type QueuedStore interface {
	Store

	// SetNXQueued is SetNX for a caller that may wait. If the key is held, t.Waiter takes the last
	// position, or keeps the one that it has. The Result has it in Position. A waiter that is
	// granted the key has no position any more. A caller with a Waiter has a WatchQueued for it
	// already; a store may give no position without one.
	SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t Turn) (Result, error)

	// WatchQueued is Watch for one waiter. It calls wake when key is reserved for the waiter, when
	// key may be free for another reason, and when a message may have been missed. Once ctx is done
	// the waiter leaves the queue, and a reservation for it goes to the next waiter. If it was the
	// head of the queue, the next waiter is woken: the head looks when the lease ends.
	WatchQueued(ctx context.Context, key, waiter string, wake func()) error
}

// Turn says how SetNXQueued uses the queue.
type Turn struct {
	Waiter string // names the waiter: unique, printable, without @; empty: the call takes no position
	// InOrder grants a free key only to the head of the queue. For any other caller the key is
	// reserved for the head, as if it had just been released. Without InOrder any caller gets a
	// free key.
	InOrder bool
	// Free says that the key has just been released, and that the caller knows of no other caller
	// that wants it. A store may use the call that is quickest for a free key.
	Free bool
}

// Reservation is how long a released key is kept for the head of its queue.
const Reservation = 200 * time.Millisecond
