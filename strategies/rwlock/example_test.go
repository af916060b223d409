package rwlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
)

func ExampleNew() {
	ctx := context.Background()
	rw := rwlock.New(memory.New())
	readers, writers := locker.New(rw.Readers()), locker.New(rw.Writers())
	for range 2 {
		l, err := readers.Lock(ctx, "config")
		if err != nil {
			fmt.Println(err)
			return
		}
		defer l.Unlock(ctx)
		fmt.Println("readers:", l.Lease().Holds)
	}
	_, err := writers.TryLock(ctx, "config")
	fmt.Println("the writer has to wait:", errors.Is(err, locker.ErrHeld))
	// Output:
	// readers: 1
	// readers: 2
	// the writer has to wait: true
}
