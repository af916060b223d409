// Package reentrant lets the owner of a lock take it again, so that work which holds the lock can
// call work which takes it. The owner is a name that [locker.ContextWithOwner] puts into a ctx, for
// instance the name of a job. Each Lock is a hold, with its own token and its own deadline. The
// lock is free when no hold is left.
//
// With Redis the key has a sorted set of holds, as in package semaphore, and one more member that
// names the owner. Each command is one script, which reads TIME once and first removes the holds
// whose end is past.
//
//	acquire   ZADD key TIME+ttl token    if no hold is left, or the holds are of the same owner
//	extend    ZADD key TIME+ttl token    if the hold is there and would end sooner
//	release   ZREM key token             if the hold is there; after the last one the lock goes to
//	          ZADD reserved TIME+200 ms  the head of the queue: a reservation, and
//	          PUBLISH a wake             to that waiter
//
// Lease.Holds says how many holds the owner had when this one was granted, including this one.
//
// Other software counts holds with HINCRBY at each acquire and release. A lost reply can't be
// repaired then: nobody knows whether the count has to go down. One hold too many stays for ever,
// because the renewal of the other holds keeps it alive. A member named by the token can be added and
// removed any number of times. And since each hold has a deadline, the hold of a dead process ends
// although the other holds are extended.
//
// # What it promises
//
// While an owner has holds, nobody else is granted the lock. A hold ends by its own release or at
// its own deadline. It never makes another hold longer or shorter, in whatever order they end. The
// last one frees the lock. All processes that give the same name are the same owner. A lock without
// an owner is a plain exclusive lock. With a [locker.Client], a nested Lock asks at once, however
// many other callers wait for the lock in that Client.
//
// # What it does not promise
//
// What package single does not promise, reentrant does not promise either.
//
// An owner is only a name: two goroutines under one name hold the lock together. So a name must be
// as unique as the work that it stands for. Holds are not a stack: nothing prevents the outer hold
// from being released first. Other owners may have to wait for as long as holds of one owner follow
// each other without a gap.
//
// reentrant stores another type than single, so give it keys of its own. On one key each finds the
// lock of the other in the way, with an error that matches locker.ErrForeignKey instead of
// locker.ErrHeld. Locks of Redisson, which are hashes, are in the way in the same manner.
package reentrant

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its holds in store.
func New(store backends.SharedStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return instance.Shared(store, admission)
}

// admission admits the holds of one owner together, and one hold without an owner. The prefix keeps
// an owner apart from the groups of other strategies.
func admission(req contract.Request) backends.Admission {
	a := backends.Admission{Group: "owner:" + req.Owner}
	if req.Owner == "" {
		a.Limit = 1
	}
	return a
}
