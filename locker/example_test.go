package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func ExampleClient_Lock() {
	ctx := context.Background()
	locks := locker.New(single.New(memory.New()))

	l, err := locks.Lock(ctx, "invoice/42")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Unlock(ctx)
	fmt.Println("charging under", l.Key())
	// Output: charging under invoice/42
}

func ExampleClient_TryLock() {
	ctx := context.Background()
	locks := locker.New(single.New(memory.New()))
	held, _ := locks.Lock(ctx, "invoice/42")
	defer held.Unlock(ctx)

	_, err := locks.TryLock(ctx, "invoice/42")
	switch {
	case err == nil:
		fmt.Println("ours")
	case errors.Is(err, locker.ErrHeld):
		fmt.Println("busy: normal")
	default:
		fmt.Println("broken: report", err)
	}
	// Output: busy: normal
}

func ExampleClient_Do() {
	ctx := context.Background()
	locks := locker.New(single.New(memory.New()), locker.WithTTL(10*time.Second))

	err := locks.Do(ctx, "invoice/42", func(ctx context.Context, l *locker.Lock) error {
		return errors.New("card declined") // the lock is released all the same
	})
	fmt.Println(err)
	// Output: card declined
}

func ExampleWithWait() {
	ctx := context.Background()
	locks := locker.New(single.New(memory.New()))
	held, _ := locks.Lock(ctx, "invoice/42")
	defer held.Unlock(ctx)

	_, err := locks.Lock(ctx, "invoice/42", locker.WithWait(10*time.Millisecond))
	fmt.Println(errors.Is(err, locker.ErrWaitLimit), errors.Is(err, locker.ErrHeld))
	// Output: true true
}

// A holder learns of a loss from its context.
func ExampleLock_Context() {
	ctx := context.Background()
	store := memory.New()
	locks := locker.New(single.New(store), locker.WithTTL(3*time.Second))
	l, _ := locks.Lock(ctx, "invoice/42")

	store.Delete("invoice/42") // an operator, or a server that forgets

	<-l.Context().Done()
	fmt.Println(context.Cause(l.Context()))
	fmt.Println(errors.Is(l.Unlock(ctx), locker.ErrLost))
	// Output:
	// lockstep: hold "invoice/42": lock lost: the store no longer has it
	// true
}
