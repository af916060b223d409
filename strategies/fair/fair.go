// Package fair grants a lock in the order of the requests, across processes. It is package single
// with a strict order: waiters stand in a queue beside the lock.
//
// With Redis each command is one script. A position in the queue is a ticket: one more than the
// last ticket.
//
//	acquire   SET key token NX PX ttl    if key is reserved for this waiter, or free and nobody is
//	                                     before it in the queue; otherwise
//	          ZADD queue ticket waiter   unless it has a position
//	extend    PEXPIRE key ttl            if key holds token and would end sooner
//	release   SET key reservation PX     if key holds token: for the first connected waiter, and
//	          PUBLISH a wake             to that waiter; or
//	          DEL key                    if nobody waits
//
// A free lock with a queue is one whose holder has died. The next caller that asks reserves it for
// the head of the queue.
//
// # What it promises beyond single
//
// A caller that asks while others wait is not granted the lock before them, however quick it is. A
// waiter is a pair of [locker.Client] and key. The calls of one Client stand in a line of their own
// and are one waiter in the queue. So Clients take turns, however many calls each of them has
// waiting. The Position of a [locker.HeldError] is the position in the queue.
//
// A head whose connection is gone is passed over at once, and must queue again. For any other the lock
// is reserved, for [backends.Reservation] or three round trips, at most [backends.MaxReservation]. A
// head that does not take the lock in that time is late: the others pass it, and it keeps its position
// until [backends.LateLimit] is over. With its next attempt it is the head again.
//
// # What it does not promise
//
// What single does not promise, fair does not promise either. In addition:
//
//   - The order is the order in which the store learns of the waiters. That is after the first
//     attempt of a waiter and one more message.
//   - A store that forgets has forgotten the queue too. Waiters then queue again in the order of
//     their next attempts.
//   - A call that does not wait (TryLock) takes no position.
//   - A lock of package single on the same key is excluded, but does not respect the queue while
//     the lock is free.
//   - [locker.WithMaxHandovers] lets a Client pass the lock between its own callers while others wait,
//     up to the number of times given to it.
//
// With Redis the order needs scripts and wake-ups. Acquire fails with a permanent error under
// WithoutScripts, WithoutWakes and WithReplicas. While a slot of a Redis Cluster moves, Acquire
// fails there (TRYAGAIN), since it uses two keys. In a cluster, a head that has lost its connection
// costs one reservation, since no server knows of all connections.
package fair

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its locks and their queues in store.
func New(store backends.QueuedStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return instance.Queued(store, true)
}
