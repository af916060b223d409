package backendtest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var nestedManyDoubles = []broken[backends.NestedStore]{
	{
		bug:    "a token may begin as what the store puts before it",
		breaks: "a token may hold any text: each is a hold of its own, and no text in it means anything",
		store:  mistaking(nil, nil, func(token string) string { return strings.TrimPrefix(token, "hold:") }),
	},
	{
		bug:    "a token is compared without its spaces",
		breaks: "a token may hold any text: each is a hold of its own, and no text in it means anything",
		store:  mistaking(nil, nil, strings.TrimSpace),
	},
	{
		bug:    "an owner is the same in either case",
		breaks: "an owner may hold any text, and is the same only as a whole",
		store:  mistaking(nil, strings.ToLower, nil),
	},
	{
		bug:    "an owner is compared without its spaces",
		breaks: "an owner may hold any text, and is the same only as a whole",
		store:  mistaking(nil, strings.TrimSpace, nil),
	},
	{
		bug:    "a key is trimmed",
		breaks: "no two keys are the same key",
		store:  mistaking(strings.TrimSpace, nil, nil),
	},
	{
		bug:    "Enter looks and then leaps",
		breaks: "of many owners that enter at once exactly one is granted",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				_, _, held := m.Get(key)
				time.Sleep(leap)
				if !held {
					m.Delete(key)
				}
				return m.Enter(ctx, key, owner, token, ttl)
			}
		}),
	},
	{
		bug:    "holds are counted afterwards",
		breaks: "holds of one owner that enter at once are all counted",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				_, _ = m.Enter(ctx, key, owner, token, ttl)
				time.Sleep(leap)
				return m.Enter(ctx, key, owner, token, ttl)
			}
		}),
	},
	{
		bug:    "Leave looks and then leaps",
		breaks: "of many Leave of one hold at once exactly one says true",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok := holds(m, key, token)
				time.Sleep(leap)
				_, err := m.Leave(ctx, key, token)
				return ok, err
			}
		}),
	},
	{
		bug:    "Leave writes back what it has read",
		breaks: "holds that leave while others enter neither take them along nor remain",
		store:  func(m *memory.Store) backends.NestedStore { return rewrites{remember(m)} },
	},
}

// rewrites is a store whose Leave writes what it has read a while ago.
type rewrites struct{ *remembering }

func (s rewrites) Leave(ctx context.Context, key, token string) (bool, error) {
	s.mu.Lock()
	tokens, owner := slices.Clone(s.tokens[key]), s.owner[key]
	s.mu.Unlock()
	tokens = slices.DeleteFunc(tokens, func(t string) bool { return !holds(s.Store, key, t) })
	time.Sleep(leap)
	ok := holds(s.Store, key, token)
	s.Delete(key)
	for _, t := range tokens {
		if t != token {
			_, _ = s.Store.Enter(ctx, key, owner, t, 10*time.Second)
		}
	}
	return ok, nil
}
