package instance

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/internal/starting"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Queued returns a Locker that keeps its locks in store. Its waiters stand in the store's queues.
// If inOrder is true, only the head of a queue gets a free lock.
func Queued(store backends.QueuedStore, inOrder bool) locker.Locker {
	l := over(queued{store, inOrder, new(roundTrips)}, store)
	if starts, ok := starting.Of(store); ok && !inOrder {
		return &started{l, starts}
	}
	return l
}

type queued struct {
	backends.QueuedStore
	inOrder bool
	trips   *roundTrips
}

func (q queued) Put(ctx context.Context, req contract.Request) (backends.Result, error) {
	if q.inOrder && req.OtherSoftware {
		return backends.Result{}, errShared
	}
	return q.SetNXQueued(ctx, req.Key, req.Token, req.TTL, q.turn(req))
}

// errShared is permanent: other software does not stand in the queue, so there is no order to keep.
var errShared error = backends.Invalid("waiters can't stand in order with other software (locker.WithOtherSoftware): use single or fenced")

// Prompt tells whether the calls of the store end by themselves.
func (q queued) Prompt() bool { return prompt.Of(q.QueuedStore) }

// Endpoint returns the address of the store.
func (q queued) Endpoint() string { return address.Of(q.QueuedStore) }

// Numbered returns a Locker that keeps its locks in store, which numbers them. If the store has
// queues, waiters stand in them.
func Numbered(store backends.NumberedStore) locker.Locker {
	queues, ok := store.(backends.QueuedStore)
	if !ok {
		set := func(ctx context.Context, key, token string, ttl time.Duration) (backends.Result, error) {
			return store.SetNXNumbered(ctx, key, token, ttl, backends.Turn{})
		}
		return Over(unqueued{value{store, set}, true}, store)
	}
	return Over(numbered{queued{queues, false, new(roundTrips)}, store}, store)
}

// numbered is a Place whose grants have numbers.
type numbered struct {
	queued
	store backends.NumberedStore
}

func (n numbered) Put(ctx context.Context, req contract.Request) (backends.Result, error) {
	return n.store.SetNXNumbered(ctx, req.Key, req.Token, req.TTL, n.turn(req))
}

// turn says how the store should treat the request in its queue.
func (q queued) turn(req contract.Request) backends.Turn {
	return q.trips.told(backends.Turn{Waiter: req.Waiter, InOrder: q.inOrder})
}

func (q queued) roundTrips() *roundTrips { return q.trips }

func (q queued) Watch(ctx context.Context, key, waiter string, wake func()) error {
	if waiter == "" {
		return q.QueuedStore.Watch(ctx, key, wake)
	}
	err := q.WatchQueued(ctx, key, waiter, wake)
	if !q.inOrder && backends.Permanent(err) { // a plain Watch may be permitted
		return q.QueuedStore.Watch(ctx, key, wake)
	}
	return err
}
