package memory_test

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Locks among the goroutines of one process, as tests use them.
func Example() {
	ctx := context.Background()
	store := memory.New()
	locks := locker.New(single.New(store))

	l, _ := locks.Lock(ctx, "invoice/42")
	_, _, held := store.Get("invoice/42")
	fmt.Println("held:", held)

	_ = l.Unlock(ctx)
	_, _, held = store.Get("invoice/42")
	fmt.Println("held:", held)
	// Output:
	// held: true
	// held: false
}
