package legacy

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// SetBit returns a Locker for the lock that is one bit: whoever turns it on has it. SETBIT answers with the bit that was
// there before (https://redis.io/docs/latest/commands/setbit/), so it is the test-and-set instruction of a processor.
//
//	acquire   SETBIT key 0 1    granted if the bit was off
//	extend    GETBIT key 0      as long as the bit is on
//	release   SETBIT key 0 0
//
// # What it promises
//
// Of those who ask for a lock that is free, one is granted it. A lease that was not granted by this very Locker is neither
// extended nor released: it keeps its grants in memory until they are released, and there is no other proof.
//
// # What it does not promise
//
//   - No expiry: when a holder dies, or a reply to SETBIT is lost on the way, the lock is locked for ever, until an operator
//     turns the bit off. An attempt with an unknown outcome is not cleaned up, because turning the bit off would free
//     whoever has it. Leases end all the same, since a [locker.Client] must be told to stop: then it releases what it
//     has. A lease that runs out in a process that lives is so given back soon after, not at that moment.
//   - No owner: a release frees whoever has the lock. If an operator has freed the lock of a holder who seemed dead, and it
//     was not, its late release frees the lock of the next one; until then its extensions succeed, as the bit is on.
//     A Client repeats a Release whose reply was lost, and if the first one did arrive, and someone has taken the
//     lock since, the repeat frees that one's lock.
//   - Nobody can tell how long a lock that is held will be (HeldError.Left is 0). A retransmission is refused.
//   - It takes any text under the key for a field of bits. ASCII has the first bit of every byte off, so the token of single
//     or a stamp of GetSet counts as free; it is granted, and that lock is spoilt.
//
// # How to get to single
//
// Not on one key: see the table in the package comment. And a released bit leaves a key without expiry, for which single
// waits for ever. So use another key for single. First make all processes take both locks, the bit first (release
// in the opposite order); when the last that takes the bit alone has gone, stop taking the bit, and delete its key.
func SetBit(store backends.LegacyStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return &bit{store: store, take: func(ctx context.Context, key string) (bool, error) {
		was, err := store.SetBit(ctx, key, 0, true)
		return !was, err
	}}
}

// GetBit returns a Locker for [SetBit] as it is written by those who look before they leap. The literature has it as an
// example of a race between check and act.
//
//	acquire   GETBIT key 0      if the bit is on, refused
//	          SETBIT key 0 1    granted, whatever it was by then
//	extend    GETBIT key 0      as long as the bit is on
//	release   SETBIT key 0 0
//
// # What it does not promise
//
// What SetBit does not, and mutual exclusion: two who both find the bit off both have the lock. It is here to be looked
// at, and to be replaced by SetBit, with which it shares its keys: that can be done process by process, and each
// process that is left can still break in.
func GetBit(store backends.LegacyStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return &bit{store: store, take: func(ctx context.Context, key string) (bool, error) {
		if on, err := store.GetBit(ctx, key, 0); on || err != nil {
			return false, err
		}
		_, err := store.SetBit(ctx, key, 0, true)
		return err == nil, err
	}}
}

// persistence is how long the cleanup of a bit goes on while the store does not answer. A value
// with an expiry needs a cleanup only until it ends by itself. A bit never does: if its cleanup
// gives up, the lock stays locked. So no TTL says how long.
const persistence = time.Hour

type bit struct {
	unwatched
	store    backends.LegacyStore
	take     func(ctx context.Context, key string) (bool, error)
	grants   grants[struct{}]
	cleanups cleanup.Queue
}

// Acquire makes one attempt.
func (b *bit) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	if err := checkRequest(ctx, b.store, req); err != nil {
		return locker.Lease{}, err
	}
	started := time.Now()
	taken, err := b.take(ctx, req.Key)
	switch {
	case err != nil:
		return locker.Lease{}, instance.Fault("acquire", req.Key, err)
	case !taken:
		return locker.Lease{}, held(req, 0)
	}
	lease := granted(req, started)
	b.grants.remember(lease, &struct{}{})
	if lease.Ended() {
		b.cleanups.Add(ctx, cleanup.Entry{TTL: persistence, Known: true, Remove: func(ctx context.Context) error {
			return unlessLost(b.Release(ctx, lease))
		}})
		return locker.Lease{}, instance.Fault("acquire", req.Key, instance.ErrLate)
	}
	return lease, nil
}

// Extend moves the end of the lease to ttl from now, unless it is later already. All it asks the store is whether
// somebody has the lock.
func (b *bit) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	if err := checkExtension(b.store, lease, ttl); err != nil {
		return lease, err
	}
	if b.grants.get(lease) == nil {
		return lease, locker.Lost(lease)
	}
	started := time.Now()
	on, err := b.store.GetBit(ctx, lease.Key, 0)
	switch {
	case err != nil:
		return lease, instance.Fault("extend", lease.Key, err)
	case !on:
		b.grants.forget(lease)
		return lease, locker.Lost(lease)
	}
	return instance.Extended(lease, started, ttl), nil
}

// Release turns the bit off, also if the lease has ended: nothing else would.
func (b *bit) Release(ctx context.Context, lease locker.Lease) error {
	if err := lease.Validate("release"); err != nil {
		return err
	}
	if b.grants.get(lease) == nil {
		return locker.Lost(lease)
	}
	was, err := b.store.SetBit(ctx, lease.Key, 0, false)
	if err != nil {
		return instance.Fault("release", lease.Key, err)
	}
	b.grants.forget(lease)
	if !was {
		return locker.Lost(lease)
	}
	return nil
}
