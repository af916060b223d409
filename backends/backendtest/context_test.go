package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var contextDoubles = []brokenStore{
	{
		bug:    "SetNX ignores its ctx",
		breaks: "SetNX with a ctx that is already done returns its error and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(_ context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(background, key, value, ttl)
			}
		}),
	},
	{
		bug:    "SetNX looks at its ctx too late",
		breaks: "SetNX with a ctx that is already done returns its error and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(background, key, value, ttl)
				return res, errors.Join(err, ctx.Err())
			}
		}),
	},
	{
		bug:    "SetNX hides the error of its ctx",
		breaks: "SetNX with a ctx that is already done returns its error and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if ctx.Err() != nil {
					err = errors.New("timeout")
				}
				return res, err
			}
		}),
	},
	{
		bug:    "ExpireIf looks at its ctx too late",
		breaks: "ExpireIf with a ctx that is already done returns its error and changes nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				ok, err := m.ExpireIf(background, key, value, ttl)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
	{
		bug:    "DeleteIf looks at its ctx too late",
		breaks: "DeleteIf with a ctx that is already done returns its error and changes nothing",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.DeleteIf(background, key, value)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
}
