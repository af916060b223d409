package lockertest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

var holdSentences = []sentence{
	{"Do calls work under the lock and releases the lock, whether work fails or not", nil, func(x *fixture) {
		c, key := x.client(locker.WithTTL(x.long)), x.key("k")
		failure := errors.New("work failed")
		for _, want := range []error{nil, failure} {
			var inside context.Context
			err := c.Do(x.Context(), key, func(ctx context.Context, l *locker.Lock) error {
				if inside = ctx; ctx.Err() != nil || !x.beneath.Holds(key) || l.Key() != key {
					x.Errorf("the lock is not held: %v", ctx.Err())
				}
				return want
			})
			if !errors.Is(err, want) || err != nil && want == nil {
				x.Errorf("Do: error %v; want %v", err, want)
			}
			if inside == nil {
				x.Fatalf("Do did not call work: %v", err)
			}
			if inside.Err() == nil {
				x.Errorf("the context of work has not ended after Do")
			}
			x.wantEmpty(key)
		}
	}},
	{"Do releases the lock when work panics, and passes the panic on", nil, func(x *fixture) {
		key := x.key("k")
		func() {
			defer func() {
				if r := recover(); r != "oh" {
					x.Errorf("recovered %v", r)
				}
			}()
			_ = x.client(locker.WithTTL(x.long)).Do(x.Context(), key, func(context.Context, *locker.Lock) error { panic("oh") })
		}()
		x.wantEmpty(key)
	}},
	{"Do releases the lock when work calls runtime.Goexit", nil, func(x *fixture) {
		key, exited := x.key("k"), make(chan struct{})
		go func() {
			defer close(exited)
			_ = x.client(locker.WithTTL(x.long)).Do(x.Context(), key, func(context.Context, *locker.Lock) error {
				runtime.Goexit()
				return nil
			})
		}()
		answer(x, "Do lets the goroutine exit", exited)
		x.wantEmpty(key)
	}},
	{"Do joins the error of work and the error of the release, in this order", nil, func(x *fixture) {
		failure := errors.New("work failed")
		x.answered(func(key string) bool {
			var began time.Time
			err := x.client(locker.WithTTL(x.long)).Do(x.Context(), key, func(context.Context, *locker.Lock) error {
				x.beneath.Delete(key)
				began = time.Now()
				return failure
			})
			if !errors.Is(err, locker.ErrLost) && x.repeated(began) {
				return false
			}
			joined, ok := err.(interface{ Unwrap() []error })
			if !ok || len(joined.Unwrap()) != 2 || joined.Unwrap()[0] != failure || !errors.Is(joined.Unwrap()[1], locker.ErrLost) {
				x.Fatalf("Do: error %q; want the error of work and ErrLost", err)
			}
			return true
		})
	}},
	{"Do whose lock was lost matches ErrLost, even if work did not fail", nil, func(x *fixture) {
		x.inTime(renewed, func(key string, ttl time.Duration) bool {
			granted := false
			var next grant
			err := x.client(locker.WithTTL(ttl)).Do(x.Context(), key, func(ctx context.Context, l *locker.Lock) error {
				granted = true
				x.beneath.Delete(key)
				next = x.grant(key, x.long)
				_ = x.lost(l) // for any reason
				return nil
			})
			if !granted {
				return false
			}
			x.wantLost("Do", err)
			x.pause(10 * tick) // for an Unlock in the background
			x.wantHolds(next)
			return true
		})
	}},
	{"Do releases the lock when its ctx ends during work", nil, func(x *fixture) {
		key := x.key("k")
		ctx, cancel := context.WithCancel(x.Context())
		err := x.client(locker.WithTTL(x.long)).Do(ctx, key, func(ctx context.Context, _ *locker.Lock) error {
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, locker.ErrLost) {
			x.Errorf("Do: error %v; want the error of the ctx", err)
		}
		x.emptyInTheEnd(key)
	}},
}
