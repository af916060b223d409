package backendtest

import (
	"context"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var legacyTxDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "TxExpireIf never shortens",
		breaks: "TxExpireIf makes its own value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					_, left, _ := m.Get(key)
					return m.Legacy().TxExpireIf(ctx, key, value, max(ttl, left))
				},
			}
		},
	},
	{
		bug:    "TxExpireIf leaves a value without expiry alone",
		breaks: "TxExpireIf makes its own value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.ExpireIf(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "TxExpireIf rounds a ttl down",
		breaks: "TxExpireIf never makes a value live shorter than asked, not by a fraction of a millisecond",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.Legacy().TxExpireIf(ctx, key, value, ttl.Truncate(time.Millisecond))
				},
			}
		},
	},
	{
		bug:    "TxExpireIf ignores the value",
		breaks: "TxExpireIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.Legacy().Expire(ctx, key, ttl)
				},
			}
		},
	},
	{
		bug:    "TxExpireIf finds a beginning of the value",
		breaks: "TxExpireIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					if present, _, _ := m.Get(key); strings.HasPrefix(present, value) {
						value = present
					}
					return m.Legacy().TxExpireIf(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "TxExpireIf takes none for an empty value",
		breaks: "TxExpireIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					ok, err := m.Legacy().TxExpireIf(ctx, key, value, ttl)
					_, _, found := m.Get(key)
					return ok || !found && value == "", err
				},
			}
		},
	},
	{
		bug:    "TxExpireIf cuts a ttl down to the limit",
		breaks: "TxExpireIf with a ttl out of the limits is refused, and the expiry stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.Legacy().TxExpireIf(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
				},
			}
		},
	},
	{
		bug:    "TxDeleteIf does nothing",
		breaks: "TxDeleteIf removes its own value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				present, _, found := m.Get(key)
				return found && present == value, nil
			}}
		},
	},
	{
		bug:    "TxDeleteIf says true if nothing is left",
		breaks: "TxDeleteIf removes its own value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				_, err := m.Legacy().TxDeleteIf(ctx, key, value)
				_, _, found := m.Get(key)
				return !found, err
			}}
		},
	},
	{
		bug:    "TxDeleteIf ignores the value",
		breaks: "TxDeleteIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				return m.Legacy().Delete(ctx, key)
			}}
		},
	},
	{
		bug:    "TxDeleteIf says false, but deletes",
		breaks: "TxDeleteIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.Legacy().TxDeleteIf(ctx, key, value)
				m.Delete(key)
				return ok, err
			}}
		},
	},
}
