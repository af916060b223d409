package instance

import (
	"context"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// Queued returns a Locker that keeps its locks in store, and whose waiters stand in the store's queues. In order, a free lock is
// for the first of them only.
func Queued(store backends.QueuedStore, inOrder bool) locker.Locker {
	l := &instance{place: queued{store, inOrder}}
	if starts, ok := store.(backends.StartingStore); ok && !inOrder {
		return &starting{l, starts}
	}
	return l
}

type queued struct {
	backends.QueuedStore
	inOrder bool
}

func (q queued) Put(ctx context.Context, req locker.Request) (backends.Result, error) {
	return q.SetNXQueued(ctx, req.Key, req.Token, req.TTL, backends.Turn{Waiter: req.Waiter, InOrder: q.inOrder, Free: req.Free})
}

func (q queued) Watch(ctx context.Context, key, waiter string, wake func()) error {
	if waiter == "" {
		return q.QueuedStore.Watch(ctx, key, wake)
	}
	err := q.WatchQueued(ctx, key, waiter, wake)
	if !q.inOrder && cleanup.Refused(err) { // it may be permitted to wait as others do
		return q.QueuedStore.Watch(ctx, key, wake)
	}
	return err
}
