package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var setNXDoubles = []brokenStore{
	{
		bug:    "SetNX stores nothing",
		breaks: "a free key is granted, with its value and its ttl",
		store: badSetNX(func(*memory.Store) setNXFunc {
			return func(context.Context, string, string, time.Duration) (backends.Result, error) {
				return backends.Result{OK: true}, nil
			}
		}),
	},
	{
		bug:    "SetNX forgets the expiry",
		breaks: "a free key is granted, with its value and its ttl",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.OK {
					m.Set(key, value, 0)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Left is the ttl asked for",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if !res.OK {
					res.Left = ttl
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Left is not told",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store:  badSetNX(withoutLeft),
	},
	{
		bug:    "Left is told by a store said not to",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store:  func(m *memory.Store) backends.Store { return m },
		noLeft: true,
	},
	{
		bug:    "every value is foreign",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				res.Foreign = !res.OK
				return res, err
			}
		}),
	},
	{
		bug:    "a refused SetNX is an error",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if err == nil && !res.OK {
					err = errors.New("held")
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a refused SetNX gives the value its ttl",
		breaks: "a refused SetNX leaves the value and its expiry alone",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if present, _, ok := m.Get(key); ok && !res.OK {
					m.Set(key, present, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a refused SetNX overwrites",
		breaks: "a refused SetNX leaves the value and its expiry alone",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if _, left, ok := m.Get(key); ok && !res.OK {
					m.Set(key, value, left)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX of the same value is refused",
		breaks: "a repeated SetNX of the same value is granted, and the value lives for ttl from then on",
		store:  badSetNX(onRepeat(func(_ *memory.Store, res *backends.Result, _, _ string, _, _ time.Duration) { res.OK = false })),
	},
	{
		bug:    "SetNX of the same value leaves its expiry",
		breaks: "a repeated SetNX of the same value is granted, and the value lives for ttl from then on",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, _, left time.Duration) {
			m.Set(key, value, left)
		})),
	},
	{
		bug:    "SetNX of the same value shortens its life",
		breaks: "a repeated SetNX of the same value never makes it live shorter, after an extension either",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl)
		})),
	},
	{
		bug:    "SetNX cuts a ttl down to the limit",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "SetNX refuses a ttl, after it has stored the value",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if err != nil {
					m.Set(key, value, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX does not say which limit",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
		store:  badSetNX(refusesTTLWith(refusal{errors.New("ttl too long")})),
	},
	{
		bug:    "SetNX leaves open whether a bad ttl was stored",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
		store:  badSetNX(refusesTTLWith(fmt.Errorf("ttl over %v", backends.DefaultMaxTTL))),
	},
	{
		bug:    "SetNX refuses a ttl of the limit",
		breaks: "SetNX with a ttl of the limit is granted",
		store: func(*memory.Store) backends.Store {
			return memory.New(memory.WithMaxTTL(backends.DefaultMaxTTL - 1))
		},
	},
	{
		bug:    "SetNX with a ttl of 0 is for ever",
		breaks: "SetNX with a ttl under a millisecond is refused, nothing is stored",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if ttl == 0 {
					m.Set(key, value, 0)
					return backends.Result{OK: true}, nil
				}
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "SetNX rounds a ttl down",
		breaks: "a value never lives shorter than asked, not by a fraction of a millisecond",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "SetNX of the same value rounds a ttl down",
		breaks: "a value that was granted again never lives shorter than asked, not by a fraction of a millisecond",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl.Truncate(time.Millisecond))
		})),
	},
	{
		bug:    "values live twice as long as asked",
		breaks: "a value is gone soon after its ttl",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, 2*ttl)
			}
		}),
	},
	{
		bug:    "an expired key is not free",
		breaks: "a key is free again when its value has expired, and not before",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			used := make(map[string]bool)
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if used[key] {
					return backends.Result{}, nil
				}
				used[key] = true
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "a key is free a little early",
		breaks: "a key is free again when its value has expired, and not before",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if _, left, _ := m.Get(key); left < time.Millisecond {
					m.Delete(key)
				}
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
}

// onRepeat does something wrong to a SetNX of the value that is there already, with so much of its life left.
func onRepeat(wrong func(m *memory.Store, res *backends.Result, key, value string, ttl, left time.Duration)) func(*memory.Store) setNXFunc {
	return func(m *memory.Store) setNXFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			present, left, ok := m.Get(key)
			res, err := m.SetNX(ctx, key, value, ttl)
			if ok && present == value && res.OK {
				wrong(m, &res, key, value, ttl, left)
			}
			return res, err
		}
	}
}

func refusesTTLWith(other error) func(*memory.Store) setNXFunc {
	return func(m *memory.Store) setNXFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			res, err := m.SetNX(ctx, key, value, ttl)
			if err != nil {
				err = other
			}
			return res, err
		}
	}
}
