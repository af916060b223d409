package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var foreignDoubles = []brokenStore{
	{
		bug:    "a foreign value is not told",
		breaks: "a value without expiry is refused as foreign, with no Left, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				res.Foreign = false
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value has a Left of -1",
		breaks: "a value without expiry is refused as foreign, with no Left, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.Foreign {
					res.Left = -1
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value is given an expiry",
		breaks: "a value without expiry is refused as foreign, with no Left, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.Foreign {
					present, _, _ := m.Get(key)
					m.Set(key, present, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value is anybody's",
		breaks: "ExpireIf and DeleteIf with another value leave a value without expiry alone",
		store:  badDeleteIf(deleteAnything),
	},
	{
		bug:    "ExpireIf gives an expiry to what has none",
		breaks: "ExpireIf with its own value without expiry says true and gives it none, since that would be shorter",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, left time.Duration) {
			m.Set(key, value, max(ttl, left))
		})),
	},
	{
		bug:    "SetNX takes any value without expiry for foreign",
		breaks: "SetNX of the same value as one without expiry is granted and gives it the ttl",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if _, left, ok := m.Get(key); ok && left == 0 {
					return backends.Result{Foreign: true}, nil
				}
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "DeleteIf deletes nothing that has no expiry",
		breaks: "DeleteIf removes its own value without expiry",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				if _, left, ok := m.Get(key); ok && left == 0 {
					return false, nil
				}
				return m.DeleteIf(ctx, key, value)
			}
		}),
	},
	{
		bug:    "only what the store has written itself counts",
		breaks: "a value that other software stored with an expiry is refused like our own",
		store: func(m *memory.Store) backends.Store {
			written := make(map[string]bool)
			return badSetNX(func(m *memory.Store) setNXFunc {
				return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					if !written[key] {
						m.Delete(key)
					}
					written[key] = true
					return m.SetNX(ctx, key, value, ttl)
				}
			})(m)
		},
	},
	{
		bug:    "another type is only held",
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return res, err
			}
		}),
	},
	{
		bug:    "another type leaves it open what was done",
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.DeleteIf(ctx, key, value)
				if err != nil {
					err = backends.ErrWrongType
				}
				return ok, err
			}
		}),
	},
	{
		bug:    "another type is overwritten",
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
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
}
