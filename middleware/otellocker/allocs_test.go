//go:build !race

package otellocker_test

import (
	"context"
	"testing"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/allocations"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// This file is built without the race detector, which allocates by itself.
func TestWithoutAnSDKTheMiddlewareMakesFewAllocations(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		max  float64
		use  func(locks *locker.Client)
	}{
		{"Lock and Unlock", 10, func(locks *locker.Client) { cycle(t, locks, key) }},
		{"Do", 10, func(locks *locker.Client) {
			if err := locks.Do(ctx, key, func(context.Context, *locker.Lock) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}},
		{"TryLock of a lock that is busy", 5, func(locks *locker.Client) {
			if _, err := locks.TryLock(ctx, "busy"); err == nil {
				t.Fatal("locked twice")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			measure := func(opts ...locker.ClientOption) float64 {
				locks := locker.New(single.New(memory.New()), opts...)
				l, err := locks.Lock(ctx, "busy")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Unlock(ctx)
				return allocations.Of(1000, func() { c.use(locks) })
			}
			bare, seen := measure(), measure(seen()...)
			t.Logf("%.2f allocations, of which %.2f are the middleware's", seen, seen-bare)
			if seen-bare > c.max+0.5 {
				t.Errorf("%.2f allocations more than the %.2f without the middleware; want at most %v", seen-bare, bare, c.max)
			}
		})
	}
}
