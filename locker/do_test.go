package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

func TestTheErrorOfDoIsOneLineThatSaysWhetherTheLockWasLost(t *testing.T) {
	const stolen = `lockstep: hold "key": lock lost: the store no longer has it`
	steal := func(s *spy, ctx context.Context) {
		s.store.Set("key", "thief", time.Minute)
		<-ctx.Done()
	}
	failure := errors.New("write failed")
	for says, c := range map[string]struct {
		work    func(s *spy, ctx context.Context, cancel func()) error
		want    string
		matches []error
		not     []error
	}{
		"the work returns the error of its ctx, which the loss ended": {
			func(s *spy, ctx context.Context, _ func()) error { steal(s, ctx); return ctx.Err() },
			stolen, []error{locker.ErrLost}, []error{context.Canceled},
		},
		"the work wraps that": {
			func(s *spy, ctx context.Context, _ func()) error {
				steal(s, ctx)
				return fmt.Errorf("row 7: %w", ctx.Err())
			},
			stolen, []error{locker.ErrLost}, []error{context.Canceled},
		},
		"the work returns that another lock was not released": {
			func(s *spy, ctx context.Context, _ func()) error {
				steal(s, ctx)
				return locker.Unconfirmed(ctx.Err())
			},
			"not confirmed; the lease ends by itself at " + time.Time{}.Local().Format(time.TimeOnly) + ": context canceled; " + stolen, []error{locker.ErrLost, context.Canceled}, nil,
		},
		"the work returns an error of a library that says it in its own words": {
			func(s *spy, ctx context.Context, _ func()) error {
				steal(s, ctx)
				return fmt.Errorf("row 7: %w", canceled{})
			},
			stolen, []error{locker.ErrLost}, []error{context.Canceled},
		},
		"the work joins an error of its own to that": {
			func(s *spy, ctx context.Context, _ func()) error {
				steal(s, ctx)
				return fmt.Errorf("%w after %w", ctx.Err(), failure)
			},
			"context canceled after write failed; " + stolen, []error{locker.ErrLost, failure}, nil,
		},
		"the work returns the cause": {
			func(s *spy, ctx context.Context, _ func()) error {
				steal(s, ctx)
				return fmt.Errorf("row 7: %w", context.Cause(ctx))
			},
			"row 7: " + stolen, []error{locker.ErrLost}, []error{context.Canceled},
		},
		"the work does not notice": {
			func(s *spy, ctx context.Context, _ func()) error { steal(s, ctx); return nil },
			stolen, []error{locker.ErrLost}, []error{context.Canceled},
		},
		"the work fails by itself as well": {
			func(s *spy, ctx context.Context, _ func()) error { steal(s, ctx); return failure },
			"write failed; " + stolen, []error{locker.ErrLost, failure}, nil,
		},
		"the caller ended the work": {
			func(_ *spy, ctx context.Context, cancel func()) error { cancel(); <-ctx.Done(); return ctx.Err() },
			"context canceled", []error{context.Canceled}, []error{locker.ErrLost},
		},
		"the caller ended the work, and the lock was lost before the release": {
			func(s *spy, ctx context.Context, cancel func()) error { cancel(); steal(s, ctx); return ctx.Err() },
			"context canceled; " + stolen, []error{context.Canceled, locker.ErrLost}, nil,
		},
	} {
		t.Run(says, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, client *locker.Client) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := client.Do(ctx, "key", func(ctx context.Context, _ *locker.Lock) error { return c.work(s, ctx, cancel) })
				if err == nil || err.Error() != c.want || strings.Contains(err.Error(), "\n") {
					t.Errorf("Do = %v; want %s", err, c.want)
				}
				mustMatch(t, err, c.matches...)
				mustNotMatch(t, err, c.not...)
			})
		})
	}
}

// Work that takes another lock may find that one held.
func TestTheErrorOfDoNamesTheLockThatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("inner", "other", time.Minute)
		outer := func() error {
			return c.Do(t.Context(), "outer", func(ctx context.Context, _ *locker.Lock) error {
				_, err := c.Lock(ctx, "inner", locker.WithWait(time.Second))
				return err
			}, locker.WithWait(time.Second))
		}
		held := func(err error) string {
			if held, ok := errors.AsType[*locker.HeldError](err); ok {
				return held.Key
			}
			return ""
		}
		if err := outer(); held(err) != "inner" {
			t.Errorf("Do = %v; want that the inner lock is held", err)
		}
		s.store.Set("outer", "other", time.Minute)
		if err := outer(); held(err) != "outer" {
			t.Errorf("Do = %v; want that the outer lock is held", err)
		}
	})
}

// canceled is an error as package net has one for a dial.
type canceled struct{}

func (canceled) Error() string        { return "operation was canceled" }
func (canceled) Is(target error) bool { return target == context.Canceled }
