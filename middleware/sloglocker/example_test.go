package sloglocker_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/sloglocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func ExampleNew() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug, // success is at Debug
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "waited", "held", "left", "error": // they vary
				return slog.Attr{}
			}
			return a
		},
	}))
	log := sloglocker.New(sloglocker.WithLogger(logger), sloglocker.WithLevel(sloglocker.Busy, slog.LevelInfo))
	locks := locker.New(single.New(memory.New()), locker.WithMiddleware(log))

	ctx := context.Background()
	_ = locks.Do(ctx, "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		_, err := locks.TryLock(ctx, "invoice/42") // another caller
		return err
	})
	// Output:
	// level=DEBUG msg="lock acquired" key=invoice/42 outcome=acquired ttl=10s attempts=1 contended=false
	// level=INFO msg="lock busy" key=invoice/42 outcome=busy ttl=10s attempts=1 contended=true error_type=held
	// level=DEBUG msg="lock released" key=invoice/42
}
