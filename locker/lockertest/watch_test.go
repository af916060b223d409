package lockertest

import (
	"context"
	"sync"

	"github.com/lockstep-go/lockstep/locker"
)

var watchDoubles = []broken{
	{
		bug:    "no watcher is woken",
		locker: changed(func(r *reference) { r.tell = func(string, []func()) {} }),
		breaks: []string{
			"Watch is active when it returns and wakes after Release, or matches errors.ErrUnsupported",
			"all watchers of a key wake, each for its own key",
		},
	},
	{
		bug: "only one watcher is woken",
		locker: changed(func(r *reference) {
			r.tell = func(_ string, wakes []func()) {
				if len(wakes) > 0 {
					wakes[0]()
				}
			}
		}),
		breaks: []string{
			"all watchers of a key wake, each for its own key",
		},
	},
	{
		bug: "Watch is unsupported although the harness does not have NoWatch", locker: func(r *reference) locker.Locker {
			return double{Locker: r, watch: unsupported}
		},
		breaks: []string{
			"Watch returns a permanent error of the store, or matches errors.ErrUnsupported",
		},
	},
	{
		bug: "Watch works although the harness has NoWatch", noWatch: true,
		breaks: []string{
			"Watch is active when it returns and wakes after Release, or matches errors.ErrUnsupported",
		},
	},
	{
		bug: "a watch goes on for ever",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, watch: func(ctx context.Context, key, waiter string, wake func()) error {
				return r.Watch(context.WithoutCancel(ctx), key, waiter, wake)
			}}
		},
		breaks: []string{
			"a watch ends with its ctx",
			"Watch with a ctx that is done returns the error of the ctx, or matches errors.ErrUnsupported",
		},
	},
	{
		bug: "Watch hides a permanent error",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, watch: func(ctx context.Context, key, waiter string, wake func()) error {
				_ = r.Watch(ctx, key, waiter, wake)
				return nil
			}}
		},
		breaks: []string{
			"Watch with a ctx that is done returns the error of the ctx, or matches errors.ErrUnsupported",
			"Watch returns a permanent error of the store, or matches errors.ErrUnsupported",
		},
	},
	{
		bug: "only the first Watch of a key wakes, once",
		locker: func(r *reference) locker.Locker {
			var seen sync.Map
			return double{Locker: r, watch: func(ctx context.Context, key, waiter string, wake func()) error {
				if _, again := seen.LoadOrStore(key, true); again {
					return nil
				}
				return r.Watch(ctx, key, waiter, sync.OnceFunc(wake))
			}}
		},
		breaks: []string{
			"Watch is active when it returns and wakes after Release, or matches errors.ErrUnsupported",
		},
	},
}
