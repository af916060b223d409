package backendtest

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var nestedLeaveDoubles = []broken[backends.NestedStore]{
	{
		bug:    "Leave does nothing",
		breaks: "Leave of the last hold frees the key",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(_ context.Context, key, token string) (bool, error) { return holds(m, key, token), nil }
		}),
	},
	{
		bug:    "Leave frees the key",
		breaks: "Leave of one of two holds keeps the other, and its life",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(_ context.Context, key, token string) (bool, error) {
				ok := holds(m, key, token)
				m.Delete(key)
				return ok, nil
			}
		}),
	},
	{
		bug:    "Leave leaves the key the life of the hold that left",
		breaks: "Leave of one of two holds keeps the other, and its life",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				_, left, _ := m.Get(key)
				ok, err := m.Leave(ctx, key, token)
				_, _ = m.Legacy().Expire(ctx, key, left)
				return ok, err
			}
		}),
	},
	{
		bug:    "Leave says true if the hold is not there afterwards",
		breaks: "Leave of a hold that has ended says false",
		store:  badLeave(trueIfLeft),
	},
	{
		bug:    "Leave says true if the hold is not there afterwards, after another Leave",
		breaks: "a second Leave says false and changes nothing",
		store:  badLeave(trueIfLeft),
	},
	{
		bug:    "Leave of an unknown hold ends another",
		breaks: "a second Leave says false and changes nothing",
		store: func(m *memory.Store) backends.NestedStore {
			r := remember(m)
			return nestedDouble{Store: m, enter: r.Enter, leave: func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				if held := r.tokens[key]; !ok && len(held) > 0 {
					_, _ = m.Leave(ctx, key, held[len(held)-1])
				}
				return ok, err
			}}
		},
	},
	{
		bug:    "Leave says false, but frees the key",
		breaks: "a late Leave leaves the next owner alone",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				m.Delete(key)
				return ok, err
			}
		}),
	},
	{
		bug:    "Leave looks at its ctx too late",
		breaks: "Leave with a ctx that is already done returns its error and changes nothing",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(background, key, token)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
	{
		bug:    "every Leave wakes",
		breaks: "Leave of one of two holds wakes nobody, Leave of the last wakes",
		store: func(m *memory.Store) backends.NestedStore {
			return wakesAlways{m, make(map[string]func())}
		},
	},
}

// wakesAlways is a store whose Leave wakes whatever remains.
type wakesAlways struct {
	*memory.Store
	wakes map[string]func()
}

func (s wakesAlways) Watch(_ context.Context, key string, wake func()) error {
	s.wakes[key] = wake
	return nil
}

func (s wakesAlways) Leave(ctx context.Context, key, token string) (bool, error) {
	ok, err := s.Store.Leave(ctx, key, token)
	s.wakes[key]()
	return ok, err
}

func trueIfLeft(m *memory.Store) leaveFunc {
	return func(ctx context.Context, key, token string) (bool, error) {
		_, err := m.Leave(ctx, key, token)
		return !holds(m, key, token), err
	}
}
