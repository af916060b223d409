package instance

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/address"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Shared returns a Locker whose leases are holds in store. admission says which holds a request may
// join. If the store has queues, waiters stand in them.
func Shared(store backends.SharedStore, admission func(contract.Request) backends.Admission) locker.Locker {
	queues, _ := store.(backends.OrderedStore)
	return Over(shared{store, queues, admission, new(roundTrips)}, store)
}

// shared is a [Place] where a lock is any number of holds.
type shared struct {
	backends.SharedStore
	queues    backends.OrderedStore // nil: the store has none
	admission func(contract.Request) backends.Admission
	trips     *roundTrips
}

// Prompt tells whether the calls of the store end by themselves.
func (s shared) Prompt() bool { return prompt.Of(s.SharedStore) }

// Endpoint returns the address of the store.
func (s shared) Endpoint() string { return address.Of(s.SharedStore) }

func (s shared) Put(ctx context.Context, req contract.Request) (backends.Result, error) {
	a := s.admission(req)
	if a.InOrder && req.OtherSoftware {
		return backends.Result{}, errShared
	}
	a.Waiter = req.Waiter
	a.InOrder = a.InOrder && !req.Joins
	a.Turn = s.trips.told(a.Turn)
	return s.Enter(ctx, req.Key, req.Token, req.TTL, a)
}

func (s shared) roundTrips() *roundTrips { return s.trips }

func (s shared) ExpireIf(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	return s.Renew(ctx, key, token, ttl)
}

func (s shared) DeleteIf(ctx context.Context, key, token string) (bool, error) {
	return s.Leave(ctx, key, token)
}

func (s shared) Watch(ctx context.Context, key, waiter string, wake func()) error {
	if waiter == "" || s.queues == nil {
		return s.SharedStore.Watch(ctx, key, wake)
	}
	err := s.queues.WatchQueued(ctx, key, waiter, wake)
	if backends.Permanent(err) && !s.admission(contract.Request{}).InOrder { // a plain Watch may be permitted
		return s.SharedStore.Watch(ctx, key, wake)
	}
	return err
}
