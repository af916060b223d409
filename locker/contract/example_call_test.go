package contract_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Middleware may follow a hold from its beginning to its end.
func ExampleCall_OnHold() {
	ctx := context.Background()
	locks := locker.New(single.New(memory.New()), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
		return narrator{next}
	}))
	l, _ := locks.Lock(ctx, "invoice/42")
	_ = l.Unlock(ctx)
	// Output:
	// begins
	// ends: lock released
}

type narrator struct{ locker.Locker }

func (n narrator) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := n.Locker.Acquire(ctx, req)
	if err != nil {
		return lease, err
	}
	contract.CallOf(ctx).OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
		fmt.Println("begins")
		return ctx, func(_ time.Time, cause error) { fmt.Println("ends:", cause) }
	})
	return lease, nil
}
