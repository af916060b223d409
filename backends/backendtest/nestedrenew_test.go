package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var nestedRenewDoubles = []broken[backends.NestedStore]{
	{
		bug:    "Renew does nothing",
		breaks: "Renew makes a hold live for ttl from now",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(_ context.Context, key, token string, _ time.Duration) (bool, error) {
				return holds(m, key, token), nil
			}
		}),
	},
	{
		bug:    "Renew shortens",
		breaks: "Renew never shortens a hold",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				ok, err := m.Renew(ctx, key, token, ttl)
				_, _ = m.Legacy().Expire(ctx, key, ttl)
				return ok, err
			}
		}),
	},
	{
		bug:    "Renew rounds a ttl down",
		breaks: "a renewed hold never lives shorter than asked, not by a fraction of a millisecond",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				return m.Renew(ctx, key, token, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "a renewal brings back what has ended",
		breaks: "the renewal of one hold does not prolong another, nor bring it back",
		store:  func(m *memory.Store) backends.NestedStore { return bringsBack{remember(m)} },
	},
	{
		bug:    "Renew enters",
		breaks: "Renew of a hold that never was says false and changes nothing",
		store:  badRenew(renewsByEntering),
	},
	{
		bug:    "Renew says false, but renews what is there",
		breaks: "Renew of a hold that never was says false and changes nothing",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				ok, err := m.Renew(ctx, key, token, ttl)
				_, _ = m.Legacy().Expire(ctx, key, ttl)
				return ok, err
			}
		}),
	},
	{
		bug:    "Renew brings back what has ended",
		breaks: "Renew of the last hold after its end says false and does not bring it back",
		store:  badRenew(renewsByEntering),
	},
	{
		bug:    "Renew cuts a ttl down to the limit",
		breaks: "Renew with a ttl out of the limits is refused, and changes nothing",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				return m.Renew(ctx, key, token, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "Renew looks at its ctx too late",
		breaks: "Renew with a ctx that is already done returns its error and changes nothing",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				ok, err := m.Renew(background, key, token, ttl)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
}

// bringsBack is a store where the renewal of one hold brings back those that have ended.
type bringsBack struct{ *remembering }

func (s bringsBack) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	ok, err := s.Store.Renew(ctx, key, token, ttl)
	for _, t := range s.tokens[key] {
		if ok {
			_, _ = s.Store.Enter(ctx, key, s.owner[key], t, ttl)
		}
	}
	return ok, err
}

func renewsByEntering(m *memory.Store) renewFunc {
	return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
		res, err := m.Enter(ctx, key, "ann", token, ttl)
		return res.OK, err
	}
}
