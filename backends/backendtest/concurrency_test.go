package backendtest

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var concurrencyDoubles = []brokenStore{
	{
		bug:    "SetNX looks and then leaps",
		breaks: "of many concurrent SetNX with different values exactly one is granted",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if _, _, held := m.Get(key); held {
					return m.SetNX(ctx, key, value, ttl)
				}
				time.Sleep(time.Millisecond)
				m.Set(key, value, ttl)
				return backends.Result{OK: true}, nil
			}
		}),
	},
	{
		bug:    "SetNX refuses while another SetNX is under way",
		breaks: "concurrent SetNX with the same value are all granted",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			var mu sync.Mutex
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if !mu.TryLock() {
					return backends.Result{}, nil
				}
				defer mu.Unlock()
				time.Sleep(time.Millisecond)
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "DeleteIf looks and then leaps",
		breaks: "of many concurrent DeleteIf with the same value exactly one says true",
		store:  badDeleteIf(looksAndThenDeletes),
	},
	{
		bug:    "DeleteIf looks and then deletes what came between",
		breaks: "a DeleteIf never removes the value of a SetNX that came between",
		store: func(m *memory.Store) backends.Store {
			return double{
				Store: m,
				setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					if value != "old" {
						time.Sleep(leap + leap/2) // between the first deletion and the second
					}
					return m.SetNX(ctx, key, value, ttl)
				},
				deleteIf: looksAndThenDeletes(m),
			}
		},
	},
}

const leap = time.Millisecond

func looksAndThenDeletes(m *memory.Store) deleteIfFunc {
	slower := time.Duration(0)
	var mu sync.Mutex
	return func(_ context.Context, key, value string) (bool, error) {
		present, _, ok := m.Get(key)
		if !ok || present != value {
			return false, nil
		}
		mu.Lock()
		slower += leap
		wait := slower
		mu.Unlock()
		time.Sleep(wait) // so that they leap one after the other
		m.Delete(key)
		return true, nil
	}
}
