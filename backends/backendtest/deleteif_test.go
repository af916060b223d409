package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var deleteIfDoubles = []brokenStore{
	{
		bug:    "DeleteIf does nothing",
		breaks: "DeleteIf removes its own value, and the key is free",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(_ context.Context, key, value string) (bool, error) {
				present, _, ok := m.Get(key)
				return ok && present == value, nil
			}
		}),
	},
	{
		bug:    "DeleteIf ignores the value",
		breaks: "DeleteIf on another value says false and changes nothing",
		store:  badDeleteIf(deleteAnything),
	},
	{
		bug:    "DeleteIf says false, but deletes",
		breaks: "DeleteIf on another value says false and changes nothing",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.DeleteIf(ctx, key, value)
				m.Delete(key)
				return ok, err
			}
		}),
	},
	{
		bug:    "DeleteIf says true if nothing is left",
		breaks: "DeleteIf on an absent key says false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf says true if nothing is left, after an expiry",
		breaks: "DeleteIf on an expired value says false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf says true if nothing is left, after a deletion",
		breaks: "a second DeleteIf says false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf remembers who once held the key",
		breaks: "a late DeleteIf leaves the next holder's value alone",
		store: func(m *memory.Store) backends.Store {
			held := make(map[string]bool)
			return double{
				Store: m,
				setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					res, err := m.SetNX(ctx, key, value, ttl)
					held[key+value] = held[key+value] || res.OK
					return res, err
				},
				deleteIf: func(_ context.Context, key, value string) (bool, error) {
					if held[key+value] {
						m.Delete(key)
					}
					return held[key+value], nil
				},
			}
		},
	},
}

func trueIfNothingIsLeft(m *memory.Store) deleteIfFunc {
	return func(ctx context.Context, key, value string) (bool, error) {
		_, err := m.DeleteIf(ctx, key, value)
		_, _, ok := m.Get(key)
		return !ok, err
	}
}
