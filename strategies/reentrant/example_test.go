package reentrant_test

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
)

// Work that holds a lock calls work that takes the same one.
func ExampleNew() {
	locks := locker.New(reentrant.New(memory.New()))
	charge := func(ctx context.Context) error {
		return locks.Do(ctx, "invoice/42", func(_ context.Context, l *locker.Lock) error {
			fmt.Println("charge: hold", l.Lease().Holds)
			return nil
		})
	}
	ctx := locker.ContextWithOwner(context.Background(), "job 7")
	err := locks.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		fmt.Println("close: hold", l.Lease().Holds)
		return charge(ctx)
	})
	fmt.Println(err)
	// Output:
	// close: hold 1
	// charge: hold 2
	// <nil>
}
