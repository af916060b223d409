package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// FaultyNumbered is [Faulty] for a store that numbers its grants, whose waiters stand in queues.
func FaultyNumbered(store NumberedQueuedStore) *FaultNumberedStore {
	return &FaultNumberedStore{FaultyQueued(store), store}
}

// NumberedQueuedStore numbers its grants and has queues.
type NumberedQueuedStore interface {
	backends.NumberedStore
	backends.QueuedStore
}

// A FaultNumberedStore is a [backends.NumberedStore] with queues whose calls meet faults, like a
// [FaultQueuedStore].
type FaultNumberedStore struct {
	*FaultQueuedStore
	store NumberedQueuedStore
}

var _ NumberedQueuedStore = (*FaultNumberedStore)(nil)

// SetNXNumbered implements [backends.NumberedStore].
func (f *FaultNumberedStore) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return perform(ctx, f.Faults, SetNXNumbered, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNXNumbered(ctx, key, value, ttl, t)
	})
}

// FaultyFenced is [Faulty] for a store that counts its grants.
func FaultyFenced(store backends.FencedStore) *FaultFencedStore {
	return &FaultFencedStore{Faulty(store), store}
}

// A FaultFencedStore is a [backends.FencedStore] whose calls meet faults, like a [FaultStore].
type FaultFencedStore struct {
	*FaultStore
	store backends.FencedStore
}

var _ backends.FencedStore = (*FaultFencedStore)(nil)

// SetNXFenced implements [backends.FencedStore].
func (f *FaultFencedStore) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return perform(ctx, f.Faults, SetNXFenced, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNXFenced(ctx, key, value, ttl)
	})
}

// RaiseFence implements [backends.FencedStore].
func (f *FaultFencedStore) RaiseFence(ctx context.Context, key, value string, to uint64) (bool, error) {
	return perform(ctx, f.Faults, RaiseFence, func(ctx context.Context) (bool, error) {
		return f.store.RaiseFence(ctx, key, value, to)
	})
}

// FaultyNested is [Faulty] for a store of nested holds.
func FaultyNested(store backends.NestedStore) *FaultNestedStore {
	return &FaultNestedStore{newFaults(), store}
}

// A FaultNestedStore is a [backends.NestedStore] whose calls meet faults, like a [FaultStore].
type FaultNestedStore struct {
	*Faults
	store backends.NestedStore
}

var _ backends.NestedStore = (*FaultNestedStore)(nil)

// Enter implements [backends.NestedStore].
func (f *FaultNestedStore) Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
	return perform(ctx, f.Faults, Enter, func(ctx context.Context) (backends.Result, error) {
		return f.store.Enter(ctx, key, owner, token, ttl)
	})
}

// Renew implements [backends.NestedStore].
func (f *FaultNestedStore) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	return perform(ctx, f.Faults, Renew, func(ctx context.Context) (bool, error) {
		return f.store.Renew(ctx, key, token, ttl)
	})
}

// Leave implements [backends.NestedStore].
func (f *FaultNestedStore) Leave(ctx context.Context, key, token string) (bool, error) {
	return perform(ctx, f.Faults, Leave, func(ctx context.Context) (bool, error) {
		return f.store.Leave(ctx, key, token)
	})
}

// Watch implements [backends.NestedStore]. Faults apply to the registration, not to the wakes.
func (f *FaultNestedStore) Watch(ctx context.Context, key string, wake func()) error {
	return f.watch(ctx, func(ctx context.Context) error { return f.store.Watch(ctx, key, wake) })
}
