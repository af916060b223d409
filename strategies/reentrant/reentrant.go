// Package reentrant lets the owner that has a lock take it again: work that holds it can call work that takes it. The
// owner is a name that [locker.ContextWithOwner] gives to a ctx, for instance that of a job. Each Lock is a hold of its
// own, with its own token and its own deadline; the lock is free when none is left.
//
// With Redis the key has a hash of holds, a field for each token with the end of that hold by the server's clock, and
// the owner beside them. Every command is one script, which takes one TIME and begins with dropping the holds that are
// past; it ends with the key's TTL set to that of the last hold, or with DEL if there is none.
//
//	acquire   HSET key token TIME+ttl    if no hold is left, or they are those of the same owner
//	extend    HSET key token TIME+ttl    if the hold is there and would end sooner
//	release   HDEL key token             if the hold is there; after the last one DEL key, PUBLISH a wake
//
// Lease.Holds says how many holds the owner had when this one was granted, itself among them.
//
// Counting holds (HINCRBY at each acquire and release, as others do) can't be repaired when a reply is lost: nobody
// knows then whether the number has to go down, and a hold too many is kept for ever by the renewal of the others. A
// field that the token names can be set and removed any number of times. And since each hold has a deadline, one whose
// holder has died ends, although the others are extended.
//
// # What it promises
//
// While an owner has holds, nobody else is granted the lock. A hold ends by its own release or at its own deadline:
// neither an inner nor an outer one makes another longer or shorter, in whatever order they end, and the last one frees
// the lock. All processes that give the same name are the same owner. A lock without an owner is a plain exclusive one.
// With a [locker.Client], a nested Lock asks at once, however many others wait for the lock in the same Client.
//
// # What it does not promise
//
// An owner is a name and no more: two goroutines under one name hold the lock together, so a name has to be as unique
// as the work that it stands for. Holds are not a stack: nothing keeps the outer one from being released first. Other
// owners may wait for as long as holds of one follow each other without a gap.
//
// All that package single does not promise. And a key is a lock of one strategy only: what single holds under the same
// key is in the way here, and the other way round, with an error that matches locker.ErrForeignKey instead of
// locker.ErrHeld. Locks of Redisson, which are hashes as well, are respected as held.
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
	return instance.Over(holds{store})
}

// holds is the place of a lock that is any number of holds.
type holds struct{ backends.NestedStore }

// Endpoint is that of the store.
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

// Watch wakes all who wait: there is no queue.
func (h holds) Watch(ctx context.Context, key, _ string, wake func()) error {
	return h.NestedStore.Watch(ctx, key, wake)
}
