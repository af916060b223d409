// Package reentrant lets the owner of a lock take it again, so that work which holds the lock can
// call work which takes it. The owner is a name that [locker.ContextWithOwner] puts into a ctx, for
// instance the name of a job. Each Lock is a hold, with its own token and its own deadline. The
// lock is free when no hold is left.
//
// With Redis the key has a hash of holds: one field for each token, with the end of that hold by
// the server's clock, and the owner. Each command is one script, which reads TIME once. The script
// first removes the holds whose end is past. At its end it sets the TTL of the key to that of the
// last hold, or deletes the key if there is none.
//
//	acquire   HSET key token TIME+ttl    if no hold is left, or the holds are of the same owner
//	extend    HSET key token TIME+ttl    if the hold is there and would end sooner
//	release   HDEL key token             if the hold is there; after the last one
//	          DEL key, PUBLISH a wake
//
// Lease.Holds says how many holds the owner had when this one was granted, including this one.
//
// Other software counts holds with HINCRBY at each acquire and release. A lost reply can't be
// repaired then: nobody knows whether the count has to go down. One hold too many stays for ever,
// because the renewal of the other holds keeps it alive. A field named by the token can be set and
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
// locker.ErrHeld. Locks of Redisson, which are hashes as well, count as held.
package reentrant

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its holds in store.
func New(store backends.NestedStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return instance.Over(holds{store}, store)
}

// holds is a [instance.Place] where a lock is any number of holds.
type holds struct{ backends.NestedStore }

// Endpoint returns the address of the store.
func (h holds) Endpoint() string { return address.Of(h.NestedStore) }

func (h holds) Put(ctx context.Context, req locker.Request) (backends.Result, error) {
	return h.Enter(ctx, req.Key, req.Owner, req.Token, req.TTL)
}

func (h holds) ExpireIf(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	return h.Renew(ctx, key, token, ttl)
}

func (h holds) DeleteIf(ctx context.Context, key, token string) (bool, error) {
	return h.Leave(ctx, key, token)
}

// Watch wakes all waiters: there is no queue.
func (h holds) Watch(ctx context.Context, key, _ string, wake func()) error {
	return h.NestedStore.Watch(ctx, key, wake)
}
