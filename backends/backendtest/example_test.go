package backendtest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// The reply to an attempt is lost: the store has granted the lock, and the program does not know. What the
// attempt has left is removed, so the next one need not wait for the end of its lease.
func ExampleFaults() {
	ctx := context.Background()
	faults := new(backendtest.Faults)
	locks := locker.New(single.New(faults.Store(memory.New())))

	faults.Once(backendtest.SetNX, backendtest.LoseReply)
	_, err := locks.TryLock(ctx, "invoice/42")
	fmt.Println("held by another:", errors.Is(err, locker.ErrHeld))
	fmt.Println("failed:", errors.Is(err, backendtest.ErrInjected))

	l, err := locks.Lock(ctx, "invoice/42")
	fmt.Println("then:", err)
	fmt.Println("released:", l.Unlock(ctx))
	// Output:
	// held by another: false
	// failed: true
	// then: <nil>
	// released: <nil>
}
