package backendtest

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// numberedDoubles are the doubles of numberSentences, which are about SetNXFenced as well, and the
// doubles with a bug in the queue.
var numberedDoubles = func() (all []broken[backends.NumberedStore]) {
	for _, d := range slices.Concat(fencedNumberDoubles, fencedManyDoubles) {
		if d.bug == "numbers begin at 0" { // numbers of a clock are far from 0
			continue
		}
		if slices.ContainsFunc(numberSentences, func(s sentence) bool { return s.says == d.breaks }) {
			all = append(all, broken[backends.NumberedStore]{bug: d.bug, breaks: d.breaks, store: func(m *memory.Store) backends.NumberedStore {
				return d.store(m).(backends.NumberedStore)
			}})
		}
	}
	return append(all, numberedTurnDoubles...)
}()

// numberedDouble is a memory store with SetNXNumbered replaced.
type numberedDouble struct {
	*memory.Store
	setNXNumbered numberedFunc
}

type numberedFunc = func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error)

func (d numberedDouble) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	return d.setNXNumbered(ctx, key, value, ttl, t)
}

func badNumbered(f func(m *memory.Store) numberedFunc) func(*memory.Store) backends.NumberedStore {
	return func(m *memory.Store) backends.NumberedStore { return numberedDouble{m, f(m)} }
}

// misturned is a store that changes the right answer by wrong.
func misturned(wrong func(t backends.Turn, right backends.Result) backends.Result) func(*memory.Store) backends.NumberedStore {
	return badNumbered(func(m *memory.Store) numberedFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
			res, err := m.SetNXNumbered(ctx, key, value, ttl, t)
			return wrong(t, res), err
		}
	})
}

// withTurn is a store that mistakes the Turn of a call.
func withTurn(mistake func(t backends.Turn) backends.Turn) func(*memory.Store) backends.NumberedStore {
	return badNumbered(func(m *memory.Store) numberedFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
			return m.SetNXNumbered(ctx, key, value, ttl, mistake(t))
		}
	})
}

// unnumberedInTurn is a store that grants a reservation without a number.
var unnumberedInTurn = misturned(func(t backends.Turn, right backends.Result) backends.Result {
	if t.Waiter != "" {
		right.Fence = 0
	}
	return right
})

var numberedTurnDoubles = []broken[backends.NumberedStore]{
	{
		bug:    "numbers stand still",
		breaks: "a number is at least 1, and greater after a release",
		store: misturned(func(_ backends.Turn, right backends.Result) backends.Result {
			right.Fence = min(right.Fence, 1)
			return right
		}),
	},
	{
		bug:    "the grant of a reservation has no number",
		breaks: "each waiter that takes its reservation gets a greater number",
		store:  unnumberedInTurn,
	},
	{
		bug:    "the grant of a reservation has the number 1",
		breaks: "a number is greater after a waiter took its reservation without a number",
		store: misturned(func(t backends.Turn, right backends.Result) backends.Result {
			if t.Waiter != "" && right.OK {
				right.Fence = 1
			}
			return right
		}),
	},
	{
		bug:    "SetNXNumbered takes no position",
		breaks: "waiters of SetNXNumbered and SetNXQueued share one queue",
		store: withTurn(func(t backends.Turn) backends.Turn {
			t.Waiter = ""
			return t
		}),
	},
	{
		bug:    "an attempt at a reserved key has a number",
		breaks: "a reservation has no number, and the key is held for the SetNXNumbered of others",
		store: misturned(func(t backends.Turn, right backends.Result) backends.Result {
			if !right.OK {
				right.Fence = 7
			}
			return right
		}),
	},
	{
		bug:    "a second call has a new number",
		breaks: "a second SetNXNumbered for a waiter has the same number",
		store: badNumbered(func(m *memory.Store) numberedFunc {
			var more atomic.Uint64
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				res, err := m.SetNXNumbered(ctx, key, value, ttl, t)
				if res.OK {
					res.Fence += more.Add(1)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNXNumbered ignores the order",
		breaks: "with InOrder, SetNXNumbered grants a free key to the head of the queue only",
		store: withTurn(func(t backends.Turn) backends.Turn {
			t.InOrder = false
			return t
		}),
	},
	{
		bug:    "waiters have numbers of their own",
		breaks: "concurrent grants to waiters have rising numbers",
		store: misturned(func(t backends.Turn, right backends.Result) backends.Result {
			if t.Waiter != "" && right.OK {
				right.Fence = 5
			}
			return right
		}),
	},
}
