package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var legacyErrorDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "Get takes a value of another type for an empty one",
		breaks: "commands on a text find a value of another type an error that matches ErrWrongType, and it stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), get: func(ctx context.Context, key string) (string, bool, error) {
				value, found, err := m.Legacy().Get(ctx, key)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return value, found, err
			}}
		},
	},
	{
		bug:    "GetSet overwrites a value of another type",
		breaks: "commands on a text find a value of another type an error that matches ErrWrongType, and it stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				old, found, err := m.Legacy().GetSet(ctx, key, value)
				m.Set(key, value, 0)
				return old, found, err
			}}
		},
	},
	{
		bug:    "SetBit leaves open whether a value of another type has changed",
		breaks: "commands on a text find a value of another type an error that matches ErrWrongType, and it stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					was, err := m.Legacy().SetBit(ctx, key, offset, on)
					if errors.Is(err, backends.ErrWrongType) {
						err = backends.ErrWrongType
					}
					return was, err
				},
			}
		},
	},
	{
		bug:    "Left ignores its ctx",
		breaks: "every command with a ctx that is already done returns its error and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(_ context.Context, key string) (time.Duration, bool, error) {
				return m.Legacy().Left(background, key)
			}}
		},
	},
	{
		bug:    "SetBit looks at its ctx too late",
		breaks: "every command with a ctx that is already done returns its error and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					was, err := m.Legacy().SetBit(background, key, offset, on)
					return was, errors.Join(err, ctx.Err())
				},
			}
		},
	},
}
