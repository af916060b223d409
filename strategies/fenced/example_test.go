package fenced_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/fence"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

// The server forgets the lock of the first holder, as a failover may, so a second one gets it. The
// first holder writes last. The resource refuses this write, because its number is lower.
func ExampleNew() {
	ctx := context.Background()
	store := memory.New()
	locks := locker.New(fenced.New(store))
	var report fence.Register[string] // the resource

	first, err := locks.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Unlock(ctx)
	store.Delete("report") // the server forgets
	second, err := locks.Lock(ctx, "report")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Unlock(ctx)

	fmt.Println("the second writes:", report.Write(second.Fence(), "of the second holder"))
	err = report.Write(first.Fence(), "of the first holder, late")
	fmt.Println("the first is late:", errors.Is(err, fence.ErrLate))
	text, _ := report.Read()
	fmt.Println(text)
	// Output:
	// the second writes: <nil>
	// the first is late: true
	// of the second holder
}
