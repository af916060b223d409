package single_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A strategy makes single attempts; locker.Client waits, renews and reports a loss.
func ExampleNew() {
	ctx := context.Background()
	l := single.New(memory.New())
	attempt := func() (contract.Lease, error) {
		return l.Acquire(ctx, contract.Request{Key: "invoice/42", Token: contract.NewToken(), TTL: 10 * time.Second})
	}
	lease, err := attempt()
	fmt.Println("first:", err)
	_, err = attempt()
	fmt.Println("for the second it is held:", errors.Is(err, locker.ErrHeld))
	fmt.Println("release:", l.Release(ctx, lease))
	// Output:
	// first: <nil>
	// for the second it is held: true
	// release: <nil>
}
