package backendtest

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
)

var watchDoubles = []brokenStore{
	{
		bug:    "a wake-up is lost",
		breaks: "Watch is active when it returns: the next DeleteIf wakes the watcher",
		store:  badWatch(func(*memory.Store) watchFunc { return func(context.Context, string, func()) error { return nil } }),
	},
	{
		bug:    "Watch returns before it is active",
		breaks: "Watch is active when it returns: the next DeleteIf wakes the watcher",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(ctx context.Context, key string, wake func()) error {
				time.AfterFunc(time.Millisecond, func() { _ = m.Watch(ctx, key, wake) })
				return nil
			}
		}),
	},
	{
		bug:    "Watch wakes once",
		breaks: "every DeleteIf wakes the watchers, not only the first",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(ctx context.Context, key string, wake func()) error {
				return m.Watch(ctx, key, sync.OnceFunc(wake))
			}
		}),
	},
	{
		bug:    "the second watch of a key replaces the first",
		breaks: "a DeleteIf wakes all watchers of the key",
		store: badWatch(func(m *memory.Store) watchFunc {
			cancels := make(map[string]context.CancelFunc)
			return func(ctx context.Context, key string, wake func()) error {
				if cancel := cancels[key]; cancel != nil {
					cancel()
				}
				ctx, cancels[key] = context.WithCancel(ctx)
				return m.Watch(ctx, key, wake)
			}
		}),
	},
	{
		bug:    "one watch at a time",
		breaks: "watchers of different keys each wake for their own key",
		store: badWatch(func(m *memory.Store) watchFunc {
			cancel := func() {}
			return func(ctx context.Context, key string, wake func()) error {
				cancel()
				ctx, cancel = context.WithCancel(ctx)
				return m.Watch(ctx, key, wake)
			}
		}),
	},
	{
		bug:    "a watch does not end",
		breaks: "a watch ends with its ctx",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(_ context.Context, key string, wake func()) error { return m.Watch(background, key, wake) }
		}),
	},
	{
		bug:    "the end of one watch ends all of its key",
		breaks: "the end of a watch leaves other watches of its key alone",
		store: badWatch(func(m *memory.Store) watchFunc {
			var ended sync.Map
			return func(ctx context.Context, key string, wake func()) error {
				context.AfterFunc(ctx, func() { ended.Store(key, true) })
				return m.Watch(background, key, func() {
					if _, all := ended.Load(key); !all {
						wake()
					}
				})
			}
		}),
	},
	{
		bug:    "a key is subscribed to once",
		breaks: "a key can be watched again after a watch has ended",
		store: badWatch(func(m *memory.Store) watchFunc {
			subscribed := make(map[string]bool)
			return func(ctx context.Context, key string, wake func()) error {
				if subscribed[key] {
					return nil
				}
				subscribed[key] = true
				return m.Watch(ctx, key, wake)
			}
		}),
	},
	{
		bug:    "the name of a channel ends at a line break",
		breaks: "a key may be any text, and Watch treats it like any other key",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(ctx context.Context, key string, wake func()) error {
				name, _, _ := strings.Cut(key, "\n")
				return m.Watch(ctx, name, wake)
			}
		}),
	},
	{
		bug:    "Watch ignores its ctx",
		breaks: "Watch with a ctx that is done returns the error of the ctx",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(_ context.Context, key string, wake func()) error { return m.Watch(background, key, wake) }
		}),
	},
	{
		bug:     "Watch does not watch",
		breaks:  "Watch of a store that cannot watch matches errors.ErrUnsupported",
		store:   badWatch(func(*memory.Store) watchFunc { return func(context.Context, string, func()) error { return nil } }),
		noWatch: true,
	},
}
