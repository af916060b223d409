package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var fencedNumberDoubles = []broken[backends.FencedStore]{
	{
		bug:    "numbers begin at 0",
		breaks: "a number is at least 1, and greater after a release",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return right - 1
		}),
	},
	{
		bug:    "a release takes the number with it",
		breaks: "a number is at least 1, and greater after a release",
		store:  forgetful,
	},
	{
		bug:    "an expiry takes the number with it",
		breaks: "a number is greater after an expiry",
		store:  forgetful,
	},
	{
		bug:    "a deletion takes the number with it",
		breaks: "a number is greater after a deletion from outside",
		store:  forgetful,
	},
	{
		bug:    "a value that comes back is the same ownership",
		breaks: "a number is greater after a deletion from outside",
		store: badFenced(func(m *memory.Store) fencedFunc {
			given := make(map[string]uint64)
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				res, err := draw(ctx, m, key, value, ttl, n)
				if before := given[key+value]; before != 0 && res.OK {
					res.Fence = before
				}
				given[key+value] = res.Fence
				return res, err
			}
		}),
	},
	{
		bug:    "a grant without number takes the number with it",
		breaks: "a number is greater after grants without number",
		store:  forgetful,
	},
	{
		bug:    "a refused attempt is told the number",
		breaks: "a number is greater after refused attempts, which have none",
		store: badFenced(func(m *memory.Store) fencedFunc {
			var last uint64
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				res, err := draw(ctx, m, key, value, ttl, n)
				last = max(last, res.Fence)
				res.Fence = last
				return res, err
			}
		}),
	},
	{
		bug:    "a refused attempt takes the number with it",
		breaks: "a number is greater after refused attempts, which have none",
		store: badFenced(func(m *memory.Store) fencedFunc {
			refused := false
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				res, err := draw(ctx, m, key, value, ttl, n)
				if res.OK && refused {
					res.Fence = 1
				}
				refused = !res.OK
				return res, err
			}
		}),
	},
	{
		bug:    "SetNXFenced of the same value has the next number",
		breaks: "a repeated SetNXFenced has the number that it had",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, again bool, right uint64) uint64 {
			if again {
				right++
			}
			return right
		}),
	},
	{
		bug:    "only a new ownership is given a number",
		breaks: "SetNXFenced of a value that was stored without a number gives it one",
		store: func(m *memory.Store) backends.FencedStore {
			return &counted{Store: m, numbers: make(map[string]uint64)}
		},
	},
	{
		bug:    "Count leaves numbers out",
		breaks: "Count is the last number and one more",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return 2 * right
		}),
	},
	{
		bug:    "Clock counts",
		breaks: "Clock is the store's time in µs since 1970",
		store: badFenced(func(m *memory.Store) fencedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, _ numbering) (backends.Result, error) {
				return m.SetNXFenced(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "Clock is in ms",
		breaks: "Clock is the store's time in µs since 1970",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return right / 1000
		}),
	},
	{
		bug:    "Clock looks at the time once",
		breaks: "Clock is the store's time in µs since 1970",
		store: badFenced(func(m *memory.Store) fencedFunc {
			n := byClock
			return func(ctx context.Context, key, value string, ttl time.Duration, _ numbering) (backends.Result, error) {
				res, err := draw(ctx, m, key, value, ttl, n)
				n = byCount
				return res, err
			}
		}),
	},
	{
		bug:    "Clock is the time and nothing else",
		breaks: "Clock rises within a µs",
		store:  misnumbered(nowByClock),
	},
	{
		bug:    "Clock is the time even where the last number is ahead",
		breaks: "Clock is the last number and one more where that is ahead of the time",
		store:  misnumbered(nowByClock),
	},
	{
		bug:    "numbers go on",
		breaks: "a key whose numbers have come to 2^53 is not granted any more, and its holder stays",
		store: func(m *memory.Store) backends.FencedStore {
			return &counted{Store: m, numbers: make(map[string]uint64)}
		},
	},
	{
		bug:    "a value is stored before its number is found to be too large",
		breaks: "a key whose numbers have come to 2^53 is not granted any more, and its holder stays",
		store: badFenced(func(m *memory.Store) fencedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				res, err := draw(ctx, m, key, value, ttl, n)
				if err != nil {
					_, _ = m.SetNX(ctx, key, value, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Count and Clock have a counter each",
		breaks: "changing between Clock and Count never lets a number fall",
		store: func(m *memory.Store) backends.FencedStore {
			count := make(map[string]uint64)
			return misnumbered(func(_ *memory.Store, key string, n numbering, _ bool, right uint64) uint64 {
				if n == byClock {
					return right
				}
				count[key]++
				return count[key]
			})(m)
		},
	},
	{
		bug:    "a counter expires after a year",
		breaks: "Count goes on after years",
		store:  losesCounterAfter(byCount, 365*24*time.Hour),
	},
	{
		bug:    "the counter of a clock that is ahead expires after its retention",
		breaks: "Clock outlives its retention by as much as it is ahead",
		store:  losesCounterAfter(byClock, backends.FenceRetention),
	},
}

func nowByClock(_ *memory.Store, _ string, n numbering, again bool, right uint64) uint64 {
	if n == byClock && !again {
		return uint64(time.Now().UnixMicro())
	}
	return right
}

func losesCounterAfter(by numbering, life time.Duration) func(*memory.Store) backends.FencedStore {
	return func(m *memory.Store) backends.FencedStore {
		used := make(map[string]time.Time)
		lost := make(map[string]bool)
		return misnumbered(func(_ *memory.Store, key string, n numbering, _ bool, right uint64) uint64 {
			last, known := used[key]
			lost[key] = lost[key] || n == by && known && time.Since(last) > life
			used[key] = time.Now()
			switch {
			case !lost[key]:
				return right
			case n == byClock:
				return uint64(time.Now().UnixMicro())
			default:
				return 1
			}
		})(m)
	}
}
