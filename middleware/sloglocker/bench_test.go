package sloglocker_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// BenchmarkLockUnlock is what the log adds to a Client and the store in memory.
func BenchmarkLockUnlock(b *testing.B) {
	to := func(level slog.Level) []contract.Middleware {
		logger := slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: level}))
		return []contract.Middleware{sloglocker.New(sloglocker.WithLogger(logger))}
	}
	for _, c := range []struct {
		name       string
		middleware []contract.Middleware
	}{
		{"without", nil},
		{"no logger", []contract.Middleware{sloglocker.New()}},
		{"from Info", to(slog.LevelInfo)},
		{"from Debug, JSON", to(slog.LevelDebug)},
	} {
		b.Run(c.name, func(b *testing.B) {
			ctx := context.Background()
			locks := locker.New(single.New(memory.New()), locker.WithMiddleware(c.middleware...))
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
