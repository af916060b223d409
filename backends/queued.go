package backends

import (
	"context"
	"time"
)

// A QueuedStore keeps a queue of waiters beside each key, so that a release wakes one waiter and
// not all. A key that is released while a waiter is in the queue is not free. It is reserved, for
// [Reservation] or longer, for the first waiter that can be told. Only SetNXQueued for that waiter
// takes it then. For all other calls the key is held. A reservation that is not taken ends, and then
// the key is free.
//
// A waiter that does not take its reservation in time is late. It keeps its position, but nobody
// waits for it: the next reservation is for the first waiter that is not late. Its next attempt ends
// that, also if the key is held. So a waiter that is dead, frozen, or not reached by its wake-up
// costs the others at most one reservation, and one that is far away or slow is not passed for ever.
// A late waiter that makes no attempt for [LateLimit] loses its position. If all waiters are late
// when the key is released, the key is free, and they are woken.
type QueuedStore interface {
	Store

	// SetNXQueued is SetNX for a caller that may wait. If the key is held, t.Waiter takes the last
	// position, or keeps the one that it has. The Result has it in Position: late waiters and the one
	// that has the reservation do not count. A waiter that is granted the key has no position any
	// more. A caller with a Waiter has a WatchQueued for it already; a store may give no position
	// without one.
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
	// InOrder grants a free key only to a caller that has no waiter before it, other than late ones.
	// For any other caller the key is reserved for the head, as if it had just been released. Without
	// InOrder any caller gets a free key.
	InOrder bool
	// RoundTrip is how long a call to the store takes at best, as far as the caller has measured it;
	// 0: it has not. A reservation for the waiter lasts longer if the waiter is far away.
	RoundTrip time.Duration
}

// Reservation is how long a released key is kept for the head of its queue, at least.
const Reservation = 200 * time.Millisecond

// MaxReservation is the longest reservation for a waiter that is far away.
const MaxReservation = 2 * time.Second

// LateLimit is how long a late waiter keeps its position without an attempt. A Client makes one
// sooner by itself, unless its Backoff is longer.
const LateLimit = 30 * time.Second

// Reservation is how long a key is reserved for the waiter, which asks for ttl: three round trips,
// within the limits. The wake-up and the attempt after it take one. A lock is not reserved for
// longer than it would be held.
func (t Turn) Reservation(ttl time.Duration) time.Duration {
	return max(Reservation, min(3*t.RoundTrip, MaxReservation, ttl).Truncate(time.Millisecond))
}
