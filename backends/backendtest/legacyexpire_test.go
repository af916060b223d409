package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var legacyExpireDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "Left is -1 where there is no expiry",
		breaks: "Left says how long a value still lives, 0 if it has no expiry, and whether there is one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, found, err := m.Legacy().Left(ctx, key)
				if found && left == 0 {
					left = -1
				}
				return left, found, err
			}}
		},
	},
	{
		bug:    "Left is in seconds",
		breaks: "Left says how long a value still lives, 0 if it has no expiry, and whether there is one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, found, err := m.Legacy().Left(ctx, key)
				return left.Round(time.Second), found, err
			}}
		},
	},
	{
		bug:    "a value without expiry is not there",
		breaks: "Left says how long a value still lives, 0 if it has no expiry, and whether there is one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, _, err := m.Legacy().Left(ctx, key)
				return left, left != 0, err
			}}
		},
	},
	{
		bug:    "Expire never shortens",
		breaks: "Expire makes any value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				_, left, _ := m.Get(key)
				return m.Legacy().Expire(ctx, key, max(ttl, left))
			}}
		},
	},
	{
		bug:    "Expire leaves a value without expiry alone",
		breaks: "Expire makes any value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				if _, left, found := m.Get(key); found && left == 0 {
					return true, nil
				}
				return m.Legacy().Expire(ctx, key, ttl)
			}}
		},
	},
	{
		bug:    "Expire rounds a ttl down",
		breaks: "Expire never makes a value live shorter than asked, not by a fraction of a millisecond",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, ttl.Truncate(time.Millisecond))
			}}
		},
	},
	{
		bug:    "Expire gives twice the ttl",
		breaks: "a value is gone soon after the ttl that Expire gave it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, 2*ttl)
			}}
		},
	},
	{
		bug:    "Expire creates",
		breaks: "Expire of a free key says false and creates nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				found, err := m.Legacy().Expire(ctx, key, ttl)
				if !found {
					m.Set(key, "", ttl)
				}
				return found, err
			}}
		},
	},
	{
		bug:    "Expire always finds something",
		breaks: "Expire of a free key says false and creates nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				_, err := m.Legacy().Expire(ctx, key, ttl)
				return true, err
			}}
		},
	},
	{
		bug:    "MaxTTL is another than the limit",
		breaks: "MaxTTL is the limit of a ttl",
		store: func(*memory.Store) backends.LegacyStore {
			return memory.New(memory.WithMaxTTL(backends.DefaultMaxTTL + 1)).Legacy()
		},
	},
	{
		bug:    "Expire cuts a ttl down to the limit",
		breaks: "Expire with a ttl out of the limits is refused, and the expiry stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, min(ttl, backends.DefaultMaxTTL))
			}}
		},
	},
	{
		bug:    "Expire deletes if the ttl is not positive",
		breaks: "Expire with a ttl out of the limits is refused, and the expiry stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				if ttl <= 0 {
					m.Delete(key)
					return true, nil
				}
				return m.Legacy().Expire(ctx, key, ttl)
			}}
		},
	},
}
