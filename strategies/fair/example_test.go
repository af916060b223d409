package fair_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
)

// Two processes wait for a third; in this example each process is a Client. A waiter behind the
// head learns its position. A caller that does not wait passes no waiter.
func ExampleNew() {
	ctx := context.Background()
	store := memory.New()
	process := func() *locker.Client { return locker.New(fair.New(store)) }

	held, err := process().Lock(ctx, "invoice/42")
	if err != nil {
		panic(err)
	}
	first := process()
	waits := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		l, err := first.Lock(ctx, "invoice/42", locker.WithBackoff(func(attempt int, _ float64) time.Duration {
			if attempt == 2 {
				close(waits) // it has made an attempt, which takes a position
			}
			return time.Minute
		}))
		if err != nil {
			panic(err)
		}
		fmt.Println("the first has it:", l.Unlock(ctx))
	}()
	<-waits

	_, err = process().Lock(ctx, "invoice/42", locker.WithWait(10*time.Millisecond))
	var behind *locker.HeldError
	if errors.As(err, &behind) {
		fmt.Println("the second had position", behind.Position)
	}
	_, err = process().TryLock(ctx, "invoice/42")
	fmt.Println("for a caller that does not wait the lock is held:", errors.Is(err, locker.ErrHeld))
	fmt.Println("the holder has done:", held.Unlock(ctx))
	<-done
	// Unordered output:
	// the second had position 2
	// for a caller that does not wait the lock is held: true
	// the holder has done: <nil>
	// the first has it: <nil>
}
