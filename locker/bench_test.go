package locker_test

import (
	"context"
	"testing"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// BenchmarkLockUnlock is what a Client and the store in memory cost together.
func BenchmarkLockUnlock(b *testing.B) {
	canEnd, cancel := context.WithCancel(context.Background())
	defer cancel()
	for name, ctx := range map[string]context.Context{"ctx that can't end": context.Background(), "cancellable ctx": canEnd} {
		b.Run(name, func(b *testing.B) {
			locks := locker.New(single.New(memory.New()))
			b.ReportAllocs()
			for b.Loop() {
				l, err := locks.Lock(ctx, "key")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
