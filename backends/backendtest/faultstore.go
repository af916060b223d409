package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Faulty wraps store. While no faults are set it passes every call through.
func Faulty(store backends.Store) *FaultStore { return &FaultStore{newFaults(), store} }

// A FaultStore is a [backends.Store] whose calls meet the faults that a test sets. It keeps the contract as far as its
// faults do. Safe for concurrent use.
type FaultStore struct {
	*Faults
	store backends.Store
}

var _ backends.Store = (*FaultStore)(nil)

// SetNX implements [backends.Store].
func (f *FaultStore) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return perform(ctx, f.Faults, SetNX, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNX(ctx, key, value, ttl)
	})
}

// ExpireIf implements [backends.Store].
func (f *FaultStore) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.Faults, ExpireIf, func(ctx context.Context) (bool, error) {
		return f.store.ExpireIf(ctx, key, value, ttl)
	})
}

// DeleteIf implements [backends.Store].
func (f *FaultStore) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	return perform(ctx, f.Faults, DeleteIf, func(ctx context.Context) (bool, error) {
		return f.store.DeleteIf(ctx, key, value)
	})
}

// Watch implements [backends.Store]. Faults apply to the registration, not to the wakes.
func (f *FaultStore) Watch(ctx context.Context, key string, wake func()) error {
	return f.watch(ctx, func(ctx context.Context) error { return f.store.Watch(ctx, key, wake) })
}
