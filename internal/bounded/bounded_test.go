package bounded

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// obeys waits until its ctx ends, and says so.
func obeys(ctx context.Context) (err error) {
	ctx, end := Context(ctx)
	defer end(&err)
	<-ctx.Done()
	return ctx.Err()
}

func TestACallWithoutDeadlineEndsAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		background := context.Background()
		with := func(limit time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(background, limit)
			t.Cleanup(cancel)
			return ctx
		}
		for _, c := range []struct {
			name  string
			ctx   func() context.Context
			after time.Duration
			err   error
			says  bool
		}{
			{"no end", func() context.Context { return background }, Limit, context.DeadlineExceeded, true},
			{"a shorter deadline", func() context.Context { return with(Limit / 2) }, Limit / 2, context.DeadlineExceeded, false},
			{"a longer deadline", func() context.Context { return with(2 * Limit) }, 2 * Limit, context.DeadlineExceeded, false},
			{"cancelled", func() context.Context {
				ctx, cancel := context.WithCancel(background)
				time.AfterFunc(time.Second, cancel)
				return ctx
			}, time.Second, context.Canceled, false},
		} {
			began := time.Now()
			err := obeys(c.ctx())
			if after := time.Since(began); after != c.after || !errors.Is(err, c.err) || strings.Contains(err.Error(), "given up after 10s") != c.says {
				t.Errorf("%s: %v after %v, want %v after %v", c.name, err, after, c.err, c.after)
			}
		}
	})
}

func TestACallThatDoesNotObeyItsCtxIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		deaf := func(context.Context) (int, error) { <-release; return 7, nil }
		began := time.Now()
		got, err := Call(context.Background(), deaf)
		if after := time.Since(began); after != Limit+grace || got != 0 || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "has not returned") || !strings.Contains(err.Error(), "given up") {
			t.Errorf("%d, %v after %v", got, err, after)
		}
		close(release)
		if got, err := Call(context.Background(), deaf); got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	})
}

func TestACallThatObeysItsCtxTellsItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := errors.New("server a:1: no answer")
		_, err := Call(context.Background(), func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, own })
		if !errors.Is(err, own) {
			t.Error(err)
		}
	})
}
