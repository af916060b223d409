package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var expireIfDoubles = []brokenStore{
	{
		bug:    "ExpireIf does nothing",
		breaks: "ExpireIf makes its own value live for ttl from now",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(_ context.Context, key, value string, _ time.Duration) (bool, error) {
				present, _, ok := m.Get(key)
				return ok && present == value, nil
			}
		}),
	},
	{
		bug:    "ExpireIf adds ttl to what is left",
		breaks: "ExpireIf makes its own value live for ttl from now",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, left time.Duration) {
			m.Set(key, value, left+ttl)
		})),
	},
	{
		bug:    "ExpireIf shortens",
		breaks: "ExpireIf never shortens a life",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl)
		})),
	},
	{
		bug:    "ExpireIf rounds a ttl down",
		breaks: "an extended value never lives shorter than asked, not by a fraction of a millisecond",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, key, value, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "ExpireIf ignores the value",
		breaks: "ExpireIf on another value says false and changes nothing",
		store:  badMatch(func(string, string) bool { return true }),
	},
	{
		bug:    "ExpireIf says false, but extends",
		breaks: "ExpireIf on another value says false and changes nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				if present, _, ok := m.Get(key); ok && present != value {
					m.Set(key, present, ttl)
				}
				return m.ExpireIf(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "ExpireIf creates",
		breaks: "ExpireIf on an absent key says false and creates nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				return res.OK, err
			}
		}),
	},
	{
		bug:    "ExpireIf says false, but creates",
		breaks: "ExpireIf on an absent key says false and creates nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				ok, err := m.ExpireIf(ctx, key, value, ttl)
				if !ok && err == nil {
					_, err = m.SetNX(ctx, key, value, ttl)
				}
				return ok, err
			}
		}),
	},
	{
		bug:    "ExpireIf brings back what has expired",
		breaks: "ExpireIf on an expired value says false and does not bring it back",
		store: func(m *memory.Store) backends.Store {
			last := make(map[string]string)
			return double{
				Store: m,
				setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					last[key] = value
					return m.SetNX(ctx, key, value, ttl)
				},
				expireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					if last[key] == value {
						_, _ = m.SetNX(ctx, key, value, ttl)
					}
					return m.ExpireIf(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "ExpireIf cuts a ttl down to the limit",
		breaks: "ExpireIf with a ttl over the limit is refused, the error names the limit, the expiry stays",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "ExpireIf with a ttl of 0 deletes",
		breaks: "ExpireIf with a ttl under a millisecond is refused, the expiry stays",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				if ttl <= 0 {
					return m.DeleteIf(ctx, key, value)
				}
				return m.ExpireIf(ctx, key, value, ttl)
			}
		}),
	},
}

// onExtension does something else in place of an extension that is granted.
func onExtension(wrong func(m *memory.Store, key, value string, ttl, left time.Duration)) func(*memory.Store) expireIfFunc {
	return func(m *memory.Store) expireIfFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			_, left, _ := m.Get(key)
			ok, err := m.ExpireIf(ctx, key, value, ttl)
			if ok {
				wrong(m, key, value, ttl, left)
			}
			return ok, err
		}
	}
}
