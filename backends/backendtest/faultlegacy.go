package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// FaultyLegacy is [Faulty] for the plain commands.
func FaultyLegacy(store backends.LegacyStore) *FaultLegacyStore {
	return &FaultLegacyStore{newFaults(), store}
}

// A FaultLegacyStore is a [backends.LegacyStore] whose calls meet faults, like a [FaultStore].
type FaultLegacyStore struct {
	*Faults
	store backends.LegacyStore
}

var _ backends.LegacyStore = (*FaultLegacyStore)(nil)

// MaxTTL implements [backends.LegacyStore]. It is no call to the store, and meets no fault.
func (f *FaultLegacyStore) MaxTTL() time.Duration { return f.store.MaxTTL() }

// SetNXForever implements [backends.LegacyStore].
func (f *FaultLegacyStore) SetNXForever(ctx context.Context, key, value string) (bool, error) {
	return perform(ctx, f.Faults, SetNXForever, func(ctx context.Context) (bool, error) {
		return f.store.SetNXForever(ctx, key, value)
	})
}

// Get implements [backends.LegacyStore].
func (f *FaultLegacyStore) Get(ctx context.Context, key string) (string, bool, error) {
	a, err := perform(ctx, f.Faults, Get, func(ctx context.Context) (found[string], error) {
		return finding(f.store.Get(ctx, key))
	})
	return a.what, a.ok, err
}

// GetSet implements [backends.LegacyStore].
func (f *FaultLegacyStore) GetSet(ctx context.Context, key, value string) (string, bool, error) {
	a, err := perform(ctx, f.Faults, GetSet, func(ctx context.Context) (found[string], error) {
		return finding(f.store.GetSet(ctx, key, value))
	})
	return a.what, a.ok, err
}

// Left implements [backends.LegacyStore].
func (f *FaultLegacyStore) Left(ctx context.Context, key string) (time.Duration, bool, error) {
	a, err := perform(ctx, f.Faults, Left, func(ctx context.Context) (found[time.Duration], error) {
		return finding(f.store.Left(ctx, key))
	})
	return a.what, a.ok, err
}

// Expire implements [backends.LegacyStore].
func (f *FaultLegacyStore) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.Faults, Expire, func(ctx context.Context) (bool, error) {
		return f.store.Expire(ctx, key, ttl)
	})
}

// Delete implements [backends.LegacyStore].
func (f *FaultLegacyStore) Delete(ctx context.Context, key string) (bool, error) {
	return perform(ctx, f.Faults, Delete, func(ctx context.Context) (bool, error) {
		return f.store.Delete(ctx, key)
	})
}

// TxExpireIf implements [backends.LegacyStore].
func (f *FaultLegacyStore) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.Faults, TxExpireIf, func(ctx context.Context) (bool, error) {
		return f.store.TxExpireIf(ctx, key, value, ttl)
	})
}

// TxDeleteIf implements [backends.LegacyStore].
func (f *FaultLegacyStore) TxDeleteIf(ctx context.Context, key, value string) (bool, error) {
	return perform(ctx, f.Faults, TxDeleteIf, func(ctx context.Context) (bool, error) {
		return f.store.TxDeleteIf(ctx, key, value)
	})
}

// GetBit implements [backends.LegacyStore].
func (f *FaultLegacyStore) GetBit(ctx context.Context, key string, offset uint32) (bool, error) {
	return perform(ctx, f.Faults, GetBit, func(ctx context.Context) (bool, error) {
		return f.store.GetBit(ctx, key, offset)
	})
}

// SetBit implements [backends.LegacyStore].
func (f *FaultLegacyStore) SetBit(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
	return perform(ctx, f.Faults, SetBit, func(ctx context.Context) (bool, error) {
		return f.store.SetBit(ctx, key, offset, on)
	})
}

// found is the answer of a command that finds something or does not.
type found[A any] struct {
	what A
	ok   bool
}

func finding[A any](what A, ok bool, err error) (found[A], error) { return found[A]{what, ok}, err }
