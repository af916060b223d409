package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

func ExampleNew() {
	ctx := context.Background()
	pool := locker.New(semaphore.New(memory.New(), 2))
	for range 3 {
		l, err := pool.TryLock(ctx, "smtp")
		if errors.Is(err, locker.ErrHeld) {
			fmt.Println("both permits are taken")
			continue
		}
		fmt.Println("a permit, and room for", l.Lease().Room)
		defer l.Unlock(ctx)
	}
	// Output:
	// a permit, and room for 1
	// a permit, and room for 0
	// both permits are taken
}

// A permit that is kept after its grant is a rate limit: two calls in any ten seconds.
func ExampleNew_rateLimit() {
	ctx := context.Background()
	limited := locker.New(semaphore.New(memory.New(), 2))
	calls := 0
	for range 5 {
		l, err := limited.TryLock(ctx, "api", locker.WithMinHold(10*time.Second))
		if errors.Is(err, locker.ErrHeld) {
			continue
		}
		calls++
		l.Unlock(ctx)
	}
	fmt.Println(calls, "calls")
	// Output: 2 calls
}
