// Package fair grants a lock in the order in which it was asked for, across processes. It is package single, and those who wait
// stand in a queue beside the lock.
//
// With Redis each command is one script. A place in the queue is a ticket, the last one and one more.
//
//	acquire   SET key token NX PX ttl    if key is reserved for who asks, or free and nobody is before him in the queue; else
//	                                     ZADD queue ticket waiter, unless he has a place
//	extend    PEXPIRE key ttl            if key holds token and would end sooner
//	release   SET key reservation PX     if key holds token: for the first of the queue who can be told, and PUBLISH to him;
//	                                     DEL key if nobody waits
//
// A free lock with a queue, whose holder has died, is reserved for the first by whoever asks next.
//
// # What it promises beyond single
//
// Nobody who asks while others wait is granted the lock before them: neither by chance nor because he is quicker. A waiter is
// a [locker.Client] and key: those of one Client stand in its own line and are one waiter in the queue, so that
// Clients take turns, however many calls each has waiting. The place is in the Position of a [locker.HeldError].
//
// Who does not take the lock when it is his turn, since he has died or is stopped, is passed over: at once if his connection
// is gone, and after [backends.Reservation] otherwise. He has to queue again.
//
// # What it does not promise
//
// All that single does not promise. The order is that in which the store has heard of the waiters, which is after their first
// refusal and a message more; and a store that forgets has forgotten the queue as well: waiters queue again in the order
// in which they look. A call that does not wait (TryLock) takes no place. Locks of package single on the same key are
// excluded, and do not respect the queue while the lock is free. And [locker.WithHandover] is a leave to pass those who wait
// elsewhere, up to so many times.
//
// With Redis, an order needs scripts and wakes, and is refused under WithoutScripts, WithoutWakes and WithReplicas. While a slot of
// a Redis Cluster moves, Acquire fails there (TRYAGAIN), since it is about two keys; and who is first in line and has lost
// its connection costs a reservation there, since no server knows of all connections.
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
