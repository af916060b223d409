package legacy

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// SetBit returns a Locker for a lock that is one bit: the caller that turns it on has the lock. SETBIT
// answers with the old bit (https://redis.io/docs/latest/commands/setbit/), so it is the
// test-and-set instruction of a processor.
//
//	acquire   SETBIT key 0 1    granted if the bit was off
//	extend    GETBIT key 0      as long as the bit is on
//	release   SETBIT key 0 0
//
// # What it promises
//
// If several callers ask for a free lock, one of them is granted it. The Locker extends and
// releases only leases that it has granted itself. It keeps its grants in memory until they are
// released; there is no other proof.
//
// # What it does not promise
//
//   - No expiry: if a holder dies, or a reply to SETBIT is lost, the lock is locked for ever, until
//     an operator turns the bit off. An attempt with an unknown outcome is not cleaned up: turning
//     the bit off would free the lock of any holder. Leases do end, so that a [locker.Client]
//     stops and then releases the lock. So a lease that runs out in a living process is given back
//     soon after its end, not at it.
//   - No owner: a release frees the lock of any holder. Suppose an operator frees the lock of a
//     holder that seems dead but is not. The late release of that holder frees the lock of the next
//     holder. Until then its extensions succeed, as the bit is on. A Client repeats a Release whose
//     reply was lost. If the first Release did arrive and another caller has taken the lock since,
//     the repeat frees that lock.
//   - No time: nobody knows how long a lock will be held (HeldError.Left is 0). A retransmission
//     finds the lock held.
//   - Any text under the key counts as a field of bits. In ASCII the first bit of every byte is
//     off. So the token of single or a stamp of GetSet counts as free: SetBit is granted the lock
//     and spoils the value.
//
// # How to get to single
//
// Not on one key: see the table in the package comment. And a released bit leaves a key without
// expiry, for which single waits for ever. So use another key for single. First make all processes
// take both locks, the bit first (release in the opposite order). When the last process that takes
// only the bit has gone, stop taking the bit, and delete its key.
func SetBit(store backends.LegacyStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return &bit{store: store, cleanups: cleanup.New(false), take: func(ctx context.Context, key string) (bool, error) {
		was, err := store.SetBit(ctx, key, 0, true)
		return !was, err
	}}
}

// GetBit returns a Locker for [SetBit] as code writes it that looks before it leaps. Books have it
// as an example of a race between check and act.
//
//	acquire   GETBIT key 0      held if the bit is on
//	          SETBIT key 0 1    granted, whatever the old bit was
//	extend    GETBIT key 0      as long as the bit is on
//	release   SETBIT key 0 0
//
// # What it does not promise
//
// What SetBit does not promise, and mutual exclusion: if two callers both find the bit off, both
// have the lock. GetBit is here to be studied, and to be replaced by SetBit. It shares its keys
// with SetBit, so processes can be replaced one by one; each old process can still break the
// exclusion.
func GetBit(store backends.LegacyStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return &bit{store: store, cleanups: cleanup.New(false), take: func(ctx context.Context, key string) (bool, error) {
		if on, err := store.GetBit(ctx, key, 0); on || err != nil {
			return false, err
		}
		_, err := store.SetBit(ctx, key, 0, true)
		return err == nil, err
	}}
}

// persistence is how long the cleanup of a bit goes on while the store does not answer. It does not
// depend on the TTL: a bit has no expiry, so the lock stays locked if the cleanup stops.
const persistence = time.Hour

type bit struct {
	limited
	store    backends.LegacyStore
	take     func(ctx context.Context, key string) (bool, error)
	grants   grants[struct{}]
	cleanups *cleanup.Queue
}

// Acquire makes one attempt.
func (b *bit) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if err := checkRequest(ctx, b.store, req); err != nil {
		return contract.Lease{}, err
	}
	started := time.Now()
	taken, err := b.take(ctx, req.Key)
	switch {
	case err != nil:
		return contract.Lease{}, instance.Fault("acquire", req.Key, err)
	case !taken:
		return contract.Lease{}, held(req, 0)
	}
	lease := granted(req, started)
	b.grants.remember(lease, &struct{}{})
	if lease.Ended() {
		remove := func(ctx context.Context) error { return unlessLost(b.Release(ctx, lease)) }
		b.cleanups.Add(ctx, cleanup.Entry{TTL: persistence, Known: true, Remove: remove, Done: contract.DelayDrain(ctx)})
		return contract.Lease{}, instance.Fault("acquire", req.Key, instance.ErrLate)
	}
	return lease, nil
}

// Extend moves the end of the lease to ttl from now, unless it is later already. It asks the store
// only whether somebody has the lock.
func (b *bit) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if err := checkExtension(ctx, b.store, lease, ttl); err != nil {
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
func (b *bit) Release(ctx context.Context, lease contract.Lease) error {
	if err := lease.Validate(); err != nil {
		return instance.Fault("release", lease.Key, err)
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
