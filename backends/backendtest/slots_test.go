package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// admitting is a store whose Enter gets another Admission, or gives another Result.
func admitting(
	before func(m *memory.Store, key, token string, a *backends.Admission), after func(key, token string, r *backends.Result),
) func(*memory.Store) backends.SharedStore {
	return func(m *memory.Store) backends.SharedStore {
		return sharedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
			if before != nil {
				before(m, key, token, &a)
			}
			r, err := m.Enter(ctx, key, token, ttl, a)
			if after != nil {
				after(key, token, &r)
			}
			return r, err
		}}
	}
}

var slotDoubles = []broken[backends.SharedStore]{
	{
		bug: "the number is the count of holds", breaks: "with Slots, each hold gets the lowest number from 0 on that no other hold has",
		store: admitting(nil, func(_, _ string, r *backends.Result) { r.Slot = max(r.Holds-1, 0) }),
	},
	{
		bug: "a second Enter gives another number", breaks: "a hold keeps its number when it enters again or is renewed",
		store: admitting(func(m *memory.Store, key, token string, _ *backends.Admission) {
			_, _ = m.Leave(background, key, token)
		}, nil),
	},
	{
		bug: "a number is never given again", breaks: "the number of a hold that has ended by itself is given again",
		store: func(m *memory.Store) backends.SharedStore {
			next, of := 0, map[string]int{}
			return admitting(nil, func(_, token string, r *backends.Result) {
				if _, ok := of[token]; !ok {
					of[token] = next
					next++
				}
				r.Slot = of[token]
			})(m)
		},
	},
	{
		bug: "every hold takes a number", breaks: "a hold without Slots has no number, and keeps none from others",
		store: admitting(func(_ *memory.Store, _, _ string, a *backends.Admission) { a.Slots = a.Limit > 0 }, nil),
	},
	{
		bug: "numbers go by the limit", breaks: "a lower limit gives no number that a hold has",
		store: admitting(nil, func(_, token string, r *backends.Result) {
			if token == "next" {
				r.Slot = 1
			}
		}),
	},
	{
		bug: "any limit goes with slots", breaks: "slots have a limit: at least 1, at most MaxSlots",
		store: admitting(func(_ *memory.Store, _, _ string, a *backends.Admission) {
			a.Limit = min(max(a.Limit, 1), backends.MaxSlots)
		}, nil),
	},
}
