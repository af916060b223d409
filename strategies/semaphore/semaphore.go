// Package semaphore lets up to n holders have a key at once. Each holds a permit of its own, with
// its own token and its own deadline. So the permit of a dead holder ends at its deadline, whatever
// the others renew, and no counter can be wrong after a lost reply.
//
// With Redis the key has a sorted set of permits: a member for each token, with the end of that
// permit by the server's clock as its score. Each command is one script, which reads TIME once and
// first removes the permits whose end is past.
//
//	acquire   ZADD key TIME+ttl token    if fewer than n members and reservations are left; otherwise
//	          ZADD queue ticket waiter   unless the waiter has a position
//	extend    ZADD key TIME+ttl token    if the token is there and would end sooner
//	release   ZREM key token             and for each waiter from the head of the queue for which
//	          ZADD reserved TIME+200 ms  there is room: a reservation, and
//	          PUBLISH a wake             to that waiter
//
// The first count of such a semaphore is in Redis in Action, section 6.3
// (https://redis.io/ebook/part-2-core-concepts/chapter-6-application-components-in-redis/6-3-counting-semaphores/),
// which takes the times from the clients. Here all times are those of the server.
//
// # What it promises
//
// Never more than n permits that have not ended, if all callers use the same n. n belongs to the
// call and not to the key, so nothing must be set up, and n can be changed while permits are held.
// With a lower n no permit ends, and none is granted until fewer than n are left. While two values
// of n are in use, the larger one is the limit.
//
// Lease.Holds has the number of permits when this one was granted, and Lease.Room how many more
// there were.
//
// # What it does not promise
//
// What package single does not promise, semaphore does not promise either. Permits have no order:
// a caller that asks while a permit is free gets it before those that wait. [WithOrder] changes
// that. Grants have no numbers, because several are valid at once: use package fenced for a
// resource that must reject a late holder.
//
// A holder that takes a second permit of the same key can wait for itself, as with any semaphore.
package semaphore

import (
	"fmt"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that grants up to permits leases of each key at once. It keeps them in
// store. If permits is less than 1, every Acquire fails with a permanent error.
func New(store backends.SharedStore, permits int, opts ...Option) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	if permits < 1 {
		return instance.Invalid(fmt.Sprintf("a semaphore of %d permits admits nobody; use 1 or more", permits))
	}
	a := backends.Admission{Limit: permits}
	for _, opt := range opts {
		if opt != nil {
			opt(&a)
		}
	}
	if err := a.Validate(); err != nil {
		return instance.Invalid(err.Error())
	}
	if _, ok := store.(backends.OrderedStore); a.InOrder && !ok {
		return instance.Invalid("semaphore.WithOrder needs a backends.OrderedStore, which the store is not")
	}
	return instance.Shared(store, func(contract.Request) backends.Admission { return a })
}

// An Option changes what [New] returns.
type Option func(*backends.Admission)

// WithOrder grants permits in the order of the requests, across processes, as package fair does
// for a lock. The store must be a [backends.OrderedStore].
func WithOrder() Option { return func(a *backends.Admission) { a.InOrder = true } }

// WithSlots gives each permit a number, which is in Lease.Slot: the lowest from 0 on that no other
// permit of the key has. So each of n workers has a number from 0 to n−1 that is its own while it
// holds the permit, such as a worker id or a partition. The number of a permit that has ended is
// given again. A permit that was granted before n was lowered keeps its number, which may be n or
// more. WithSlots serves 1 to [backends.MaxSlots] permits; all callers of a key must use it.
func WithSlots() Option { return func(a *backends.Admission) { a.Slots = true } }
