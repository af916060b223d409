// Package cleanup removes the keys that operations with an unknown outcome may have left in a
// store.
package cleanup

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
)

const (
	// for one call: a connection that is stuck must not use up the whole time
	tryLimit   = time.Second
	firstPause = 5 * time.Millisecond // of Repeat, between calls that failed, doubling
	maxPause   = time.Second          // up to this
)

// Repeat calls fn until it returns nil or a permanent error, or ctx is done. It returns the last
// error of fn. Each call has its own limit.
func Repeat(ctx context.Context, fn func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err := try(ctx, tryLimit, fn); err == nil || outcome.Permanent(err) || !sleep(ctx, pause) {
			return err
		}
	}
}

func try(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}

// sleep returns false as soon as ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
