package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var legacySetDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "SetNXForever stores with an expiry",
		breaks: "SetNXForever stores in a free key, without expiry",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				res, err := m.SetNX(ctx, key, value, time.Hour)
				return res.OK, err
			}}
		},
	},
	{
		bug:    "SetNXForever overwrites",
		breaks: "SetNXForever of a key that is not free says false and changes nothing, not even with the same value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.Legacy().SetNXForever(ctx, key, value)
				m.Set(key, value, 0)
				return ok, err
			}}
		},
	},
	{
		bug:    "SetNXForever of the same value is granted",
		breaks: "SetNXForever of a key that is not free says false and changes nothing, not even with the same value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				present, _, found := m.Get(key)
				ok, err := m.Legacy().SetNXForever(ctx, key, value)
				return ok || found && present == value, err
			}}
		},
	},
	{
		bug:    "SetNXForever takes a value of another type for an error",
		breaks: "SetNXForever of a key that is not free says false and changes nothing, not even with the same value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				if _, _, err := m.Legacy().Get(ctx, key); err != nil {
					return false, err
				}
				return m.Legacy().SetNXForever(ctx, key, value)
			}}
		},
	},
	{
		bug:    "an expired key is not free",
		breaks: "SetNXForever stores in a key whose value has expired",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(context.Context, string, string) (bool, error) {
				return false, nil
			}}
		},
	},
	{
		bug:    "Get does not tell an empty value from none",
		breaks: "Get returns the value, or that there is none",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), get: func(ctx context.Context, key string) (string, bool, error) {
				value, _, err := m.Legacy().Get(ctx, key)
				return value, value != "", err
			}}
		},
	},
	{
		bug:    "Get removes the value",
		breaks: "Get returns the value, or that there is none",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), get: func(ctx context.Context, key string) (string, bool, error) {
				value, found, err := m.Legacy().Get(ctx, key)
				m.Delete(key)
				return value, found, err
			}}
		},
	},
	{
		bug:    "GetSet keeps the expiry",
		breaks: "GetSet stores without expiry whatever was there, and returns it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				_, left, _ := m.Get(key)
				old, found, err := m.Legacy().GetSet(ctx, key, value)
				m.Set(key, value, left)
				return old, found, err
			}}
		},
	},
	{
		bug:    "GetSet returns the new value",
		breaks: "GetSet stores without expiry whatever was there, and returns it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				_, found, err := m.Legacy().GetSet(ctx, key, value)
				return value, found, err
			}}
		},
	},
	{
		bug:    "GetSet stores only where something is",
		breaks: "GetSet stores without expiry whatever was there, and returns it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				if _, _, found := m.Get(key); !found {
					return "", false, nil
				}
				return m.Legacy().GetSet(ctx, key, value)
			}}
		},
	},
	{
		bug:    "Delete always finds something",
		breaks: "Delete removes whatever is there, and says whether there was something",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), delete: func(ctx context.Context, key string) (bool, error) {
				_, err := m.Legacy().Delete(ctx, key)
				return true, err
			}}
		},
	},
	{
		bug:    "Delete removes only texts",
		breaks: "Delete removes whatever is there, and says whether there was something",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), delete: func(ctx context.Context, key string) (bool, error) {
				if _, _, err := m.Legacy().Get(ctx, key); err != nil {
					return false, err
				}
				return m.Legacy().Delete(ctx, key)
			}}
		},
	},
}
