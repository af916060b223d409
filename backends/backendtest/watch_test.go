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
		bug:    "a wake is lost",
		breaks: "Watch is active when it returns: a DeleteIf after it wakes",
		store:  badWatch(func(*memory.Store) watchFunc { return func(context.Context, string, func()) error { return nil } }),
	},
	{
		bug:    "Watch returns before it is active",
		breaks: "Watch is active when it returns: a DeleteIf after it wakes",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(ctx context.Context, key string, wake func()) error {
				time.AfterFunc(time.Millisecond, func() { _ = m.Watch(ctx, key, wake) })
				return nil
			}
		}),
	},
	{
		bug:    "Watch wakes once",
		breaks: "Watch wakes at every deletion, not only at the first",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(ctx context.Context, key string, wake func()) error {
				return m.Watch(ctx, key, sync.OnceFunc(wake))
			}
		}),
	},
	{
		bug:    "the second watch of a key replaces the first",
		breaks: "all who watch a key wake",
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
		breaks: "those who watch different keys wake for their own",
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
		breaks: "the end of a watch leaves others on its key alone",
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
		bug:    "a channel's name ends at a line break",
		breaks: "a key may hold any text: it is watched like any other",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(ctx context.Context, key string, wake func()) error {
				name, _, _ := strings.Cut(key, "\n")
				return m.Watch(ctx, name, wake)
			}
		}),
	},
	{
		bug:    "Watch ignores its ctx",
		breaks: "Watch with a ctx that is already done returns its error",
		store: badWatch(func(m *memory.Store) watchFunc {
			return func(_ context.Context, key string, wake func()) error { return m.Watch(background, key, wake) }
		}),
	},
	{
		bug:     "Watch pretends",
		breaks:  "a store that cannot watch says so",
		store:   badWatch(func(*memory.Store) watchFunc { return func(context.Context, string, func()) error { return nil } }),
		noWatch: true,
	},
}
