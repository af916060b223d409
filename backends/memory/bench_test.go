package memory_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
)

func BenchmarkSetNXDeleteIf(b *testing.B) {
	s := memory.New()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		if res, err := s.SetNX(ctx, "key", "token", 20*time.Second); err != nil || !res.OK {
			b.Fatal(res, err)
		}
		if ok, err := s.DeleteIf(ctx, "key", "token"); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkSetNXRefused(b *testing.B) {
	s := memory.New()
	s.Set("key", "theirs", time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		if res, err := s.SetNX(b.Context(), "key", "token", 20*time.Second); err != nil || res.OK {
			b.Fatal(res, err)
		}
	}
}

func BenchmarkExpireIf(b *testing.B) {
	s := memory.New()
	s.Set("key", "token", 20*time.Second)
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := s.ExpireIf(b.Context(), "key", "token", 20*time.Second); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkSetNXDeleteIfParallel(b *testing.B) {
	s := memory.New()
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprint("key", n.Add(1))
		for pb.Next() {
			if res, err := s.SetNX(b.Context(), key, "token", 20*time.Second); err != nil || !res.OK {
				b.Error(res, err)
			}
			if ok, err := s.DeleteIf(b.Context(), key, "token"); err != nil || !ok {
				b.Error(ok, err)
			}
		}
	})
}

// Every value expires instead of being deleted, so that this includes the sweeps.
func BenchmarkSetNXNewKeys(b *testing.B) {
	s := memory.New()
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := s.SetNX(b.Context(), keys[i%len(keys)], "token", time.Millisecond); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
