package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var nestedForeignDoubles = []broken[backends.NestedStore]{
	{
		bug:    "a value of another type is just held",
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				res, err := m.Enter(ctx, key, owner, token, ttl)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Leave deletes a value of another type",
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				if err != nil {
					m.Delete(key)
				}
				return ok, err
			}
		}),
	},
	{
		bug:    "a foreign value is not told",
		breaks: "a value of the type of holds without expiry is refused as foreign, with no Left, and stays",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Foreign = false
		}),
	},
	{
		bug:    "a foreign value is taken over",
		breaks: "a value of the type of holds without expiry is refused as foreign, with no Left, and stays",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				res, err := m.Enter(ctx, key, owner, token, ttl)
				if res.Foreign {
					m.Delete(key)
					return m.Enter(ctx, key, owner, token, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Leave deletes a foreign value",
		breaks: "a value of the type of holds without expiry is refused as foreign, with no Left, and stays",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				m.Delete(key)
				return ok, err
			}
		}),
	},
}
