package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// FaultyQueued is [Faulty] for a store whose waiters stand in queues. The faults of SetNX meet SetNXQueued too, and those of
// Watch meet WatchQueued: a strategy asks in one way or the other as it comes.
func FaultyQueued(store backends.QueuedStore) *FaultQueuedStore {
	return &FaultQueuedStore{Faulty(store), store}
}

// A FaultQueuedStore is a [backends.QueuedStore] whose calls meet faults, like a [FaultStore].
type FaultQueuedStore struct {
	*FaultStore
	store backends.QueuedStore
}

var _ backends.QueuedStore = (*FaultQueuedStore)(nil)

// SetNXQueued implements [backends.QueuedStore].
func (f *FaultQueuedStore) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return perform(ctx, f.Faults, SetNX, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNXQueued(ctx, key, value, ttl, t)
	})
}

// WatchQueued implements [backends.QueuedStore]. Faults apply to the registration, not to the wakes.
func (f *FaultQueuedStore) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	return f.watch(ctx, func(ctx context.Context) error { return f.store.WatchQueued(ctx, key, waiter, wake) })
}
