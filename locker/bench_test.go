package locker_test

import (
	"context"
	"fmt"
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

// BenchmarkDoAll is what a key costs among others. It must not grow with their number.
func BenchmarkDoAll(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for _, n := range []int{1, 100, 4000} {
		b.Run(fmt.Sprintf("%d keys", n), func(b *testing.B) {
			locks, keys := locker.New(single.New(memory.New())), manyKeys(n)
			for b.Loop() {
				err := locks.DoAll(ctx, keys, func(context.Context, []*locker.Lock) error { return nil })
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
		})
	}
}

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key %04d", i)
	}
	return keys
}
