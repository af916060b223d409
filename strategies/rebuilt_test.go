package strategies_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

// Middleware may build each Request and each Lease again from their fields: around each attempt, and around
// the wait. A Client and a strategy leave nothing else in them.
func TestMiddlewareThatBuildsRequestsAndLeasesAgainKeepsTheContract(t *testing.T) {
	rebuild := func(next locker.Locker) locker.Locker { return rebuilding{next} }
	beneath.Around(t, func(_ *testing.T, l locker.Locker) locker.Locker { return rebuild(l) }, locker.WithMiddleware(rebuild))
}

type rebuilding struct{ locker.Locker }

func (r rebuilding) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := r.Locker.Acquire(ctx, rebuilt(req))
	return rebuilt(lease), err
}

func (r rebuilding) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	lease, err := r.Locker.Transfer(ctx, from, rebuilt(req))
	return rebuilt(lease), err
}

func (r rebuilding) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	extended, err := r.Locker.Extend(ctx, rebuilt(lease), ttl)
	return rebuilt(extended), err
}

func (r rebuilding) Release(ctx context.Context, lease contract.Lease) error {
	return r.Locker.Release(ctx, rebuilt(lease))
}

// rebuilt is a new value with the exported fields of v, those of embedded structs included.
func rebuilt[T any](v T) (again T) {
	from, to := reflect.ValueOf(v), reflect.ValueOf(&again).Elem()
	for _, f := range reflect.VisibleFields(from.Type()) {
		if f.IsExported() && !f.Anonymous {
			to.FieldByIndex(f.Index).Set(from.FieldByIndex(f.Index))
		}
	}
	return again
}
