package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var fencedDoubles = slices.Concat(fencedNumberDoubles, fencedRaiseDoubles, fencedManyDoubles)

// fencedDouble is a memory store with its numbers replaced.
type fencedDouble struct {
	*memory.Store
	setNXFenced fencedFunc
	raiseFence  raiseFunc
}

type (
	fencedFunc = func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error)
	raiseFunc  = func(ctx context.Context, key, value string, to uint64) (bool, error)
)

func (d fencedDouble) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return d.set(ctx, key, value, ttl, byCount)
}

func (d fencedDouble) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if t.Waiter != "" || t.InOrder {
		return d.Store.SetNXNumbered(ctx, key, value, ttl, t)
	}
	return d.set(ctx, key, value, ttl, byClock)
}

func (d fencedDouble) set(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
	if d.setNXFenced != nil {
		return d.setNXFenced(ctx, key, value, ttl, n)
	}
	return draw(ctx, d.Store, key, value, ttl, n)
}

func (d fencedDouble) RaiseFence(ctx context.Context, key, value string, to uint64) (bool, error) {
	if d.raiseFence != nil {
		return d.raiseFence(ctx, key, value, to)
	}
	return d.Store.RaiseFence(ctx, key, value, to)
}

func badFenced(f func(m *memory.Store) fencedFunc) func(*memory.Store) backends.FencedStore {
	return func(m *memory.Store) backends.FencedStore { return fencedDouble{Store: m, setNXFenced: f(m)} }
}

func badRaise(f func(m *memory.Store) raiseFunc) func(*memory.Store) backends.FencedStore {
	return func(m *memory.Store) backends.FencedStore { return fencedDouble{Store: m, raiseFence: f(m)} }
}

// misnumbered is a store that changes the right number of a grant by wrong. again says that the
// value was there already.
func misnumbered(wrong func(m *memory.Store, key string, n numbering, again bool, right uint64) uint64) func(*memory.Store) backends.FencedStore {
	return badFenced(func(m *memory.Store) fencedFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
			present, _, held := m.Get(key)
			res, err := draw(ctx, m, key, value, ttl, n)
			if res.OK {
				res.Fence = wrong(m, key, n, held && present == value, res.Fence)
			}
			return res, err
		}
	})
}

// forgetful is a store that keeps a number only as long as the value.
func forgetful(m *memory.Store) backends.FencedStore {
	var mu sync.Mutex
	numbers := make(map[string]uint64)
	return fencedDouble{
		Store: m,
		setNXFenced: func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			if _, _, held := m.Get(key); !held {
				numbers[key] = 0
			}
			res, err := draw(ctx, m, key, value, ttl, n)
			if res.OK {
				numbers[key]++
				res.Fence = numbers[key]
			}
			return res, err
		},
	}
}

// counting is a store with one call that gives the first number by count.
type counting struct {
	*memory.Store
	call string
}

func (s counting) first(call string, res backends.Result, err error) (backends.Result, error) {
	if s.call == call && res.OK {
		res.Fence = 1
	}
	return res, err
}

func (s counting) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	res, err := s.Store.SetNXNumbered(ctx, key, value, ttl, t)
	return s.first("SetNXNumbered", res, err)
}

func (s counting) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	res, err := s.Store.Enter(ctx, key, token, ttl, a)
	return s.first("Enter", res, err)
}

func (s counting) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (backends.Result, error) {
	res, err := s.Store.Transfer(ctx, key, from, value, ttl, numbered)
	return s.first("Transfer", res, err)
}

func (s counting) TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	res, err := s.Store.TransferHold(ctx, key, from, token, ttl, group, numbered)
	return s.first("TransferHold", res, err)
}

// counted is a store that keeps its numbers in a map, with bugs in the funcs.
type counted struct {
	*memory.Store
	mu      sync.Mutex
	numbers map[string]uint64
	name    func(key string) string               // nil: key itself
	lands   func(held bool, last, to uint64) bool // nil: without a bug
}

func (c *counted) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return c.set(ctx, key, value, ttl, byCount)
}

func (c *counted) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, _ backends.Turn) (backends.Result, error) {
	return c.set(ctx, key, value, ttl, byClock)
}

func (c *counted) set(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	present, _, held := c.Get(key)
	res, err := c.SetNX(ctx, key, value, ttl)
	if !res.OK {
		return res, err
	}
	if c.name != nil {
		key = c.name(key)
	}
	if !held || present != value {
		c.numbers[key]++
		if now := uint64(time.Now().UnixMicro()); n == byClock && now > c.numbers[key] {
			c.numbers[key] = now
		}
	}
	res.Fence = c.numbers[key]
	return res, err
}

func (c *counted) RaiseFence(_ context.Context, key, value string, to uint64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	present, _, found := c.Get(key)
	held := found && present == value
	if c.name != nil {
		key = c.name(key)
	}
	lands := held && c.numbers[key] <= to
	if c.lands != nil {
		lands = c.lands(held, c.numbers[key], to)
	}
	if lands {
		c.numbers[key] = to
	}
	return lands, nil
}

func countedBy(name func(key string) string) func(*memory.Store) backends.FencedStore {
	return func(m *memory.Store) backends.FencedStore {
		return &counted{Store: m, numbers: make(map[string]uint64), name: name}
	}
}

func landingIf(lands func(held bool, last, to uint64) bool) func(*memory.Store) backends.FencedStore {
	return func(m *memory.Store) backends.FencedStore {
		return &counted{Store: m, numbers: make(map[string]uint64), lands: lands}
	}
}

var fencedNumberDoubles = []broken[backends.FencedStore]{
	{
		bug:    "numbers begin at 0",
		breaks: "a number is at least 1, and greater after a release",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return right - 1
		}),
	},
	{
		bug:    "a release removes the number",
		breaks: "a number is at least 1, and greater after a release",
		store:  forgetful,
	},
	{
		bug:    "an expiry removes the number",
		breaks: "a number is greater after an expiry",
		store:  forgetful,
	},
	{
		bug:    "a deletion removes the number",
		breaks: "a number is greater after an operator has deleted the key",
		store:  forgetful,
	},
	{
		bug:    "a value that is stored again is the same ownership",
		breaks: "a number is greater after an operator has deleted the key",
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
		bug:    "a grant without a number removes the number",
		breaks: "a number is greater after grants without a number",
		store:  forgetful,
	},
	{
		bug:    "an attempt at a held key has a number",
		breaks: "a number is greater after attempts that found the key held, which have none",
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
		bug:    "an attempt at a held key removes the number",
		breaks: "a number is greater after attempts that found the key held, which have none",
		store: badFenced(func(m *memory.Store) fencedFunc {
			held := false
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				res, err := draw(ctx, m, key, value, ttl, n)
				if res.OK && held {
					res.Fence = 1
				}
				held = !res.OK
				return res, err
			}
		}),
	},
	{
		bug:    "SetNXFenced of the same value has the next number",
		breaks: "a second SetNXFenced of the same value has the same number",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, again bool, right uint64) uint64 {
			if again {
				right++
			}
			return right
		}),
	},
	{
		bug:    "only a new ownership gets a number",
		breaks: "SetNXFenced numbers a value that was stored without a number",
		store: func(m *memory.Store) backends.FencedStore {
			return &counted{Store: m, numbers: make(map[string]uint64)}
		},
	},
	{
		bug:    "Count leaves numbers out",
		breaks: "SetNXFenced gives the last number plus one",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return 2 * right
		}),
	},
	{
		bug:    "Clock counts",
		breaks: "SetNXNumbered gives the time of the store in µs since 1970",
		store: badFenced(func(m *memory.Store) fencedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, _ numbering) (backends.Result, error) {
				return m.SetNXFenced(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "Clock is in ms",
		breaks: "SetNXNumbered gives the time of the store in µs since 1970",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return right / 1000
		}),
	},
	{
		bug:    "Clock looks at the time once",
		breaks: "SetNXNumbered gives the time of the store in µs since 1970",
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
		breaks: "numbers by the clock rise within a µs",
		store:  misnumbered(nowByClock),
	},
	{
		bug:    "Clock is the time even if the last number is ahead",
		breaks: "SetNXNumbered gives the last number plus one if that is ahead of the clock",
		store:  misnumbered(nowByClock),
	},
	{
		bug:    "waiters are counted",
		breaks: "waiters, holds and transfers are numbered by the time of the store too",
		store:  func(m *memory.Store) backends.FencedStore { return counting{m, "SetNXNumbered"} },
	},
	{
		bug:    "holds are counted",
		breaks: "waiters, holds and transfers are numbered by the time of the store too",
		store:  func(m *memory.Store) backends.FencedStore { return counting{m, "Enter"} },
	},
	{
		bug:    "transfers are counted",
		breaks: "waiters, holds and transfers are numbered by the time of the store too",
		store:  func(m *memory.Store) backends.FencedStore { return counting{m, "Transfer"} },
	},
	{
		bug:    "holds that move are counted",
		breaks: "waiters, holds and transfers are numbered by the time of the store too",
		store:  func(m *memory.Store) backends.FencedStore { return counting{m, "TransferHold"} },
	},
	{
		bug:    "numbers go on",
		breaks: "a grant that would need the number 2^53 is a permanent error, and stores nothing",
		store: func(m *memory.Store) backends.FencedStore {
			return &counted{Store: m, numbers: make(map[string]uint64)}
		},
	},
	{
		bug:    "a value is stored before its number is found to be too large",
		breaks: "a grant that would need the number 2^53 is a permanent error, and stores nothing",
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
		breaks: "numbers rise when SetNXFenced and SetNXNumbered take turns",
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
		breaks: "SetNXFenced goes on counting after years",
		store:  losesCounterAfter(byCount, 365*24*time.Hour),
	},
	{
		bug:    "the counter of a clock that is ahead expires after its retention",
		breaks: "a number that is ahead of the clock outlives FenceRetention by that difference",
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

var fencedRaiseDoubles = []broken[backends.FencedStore]{
	{
		bug:    "RaiseFence returns true, and does nothing",
		breaks: "RaiseFence by the holder lands, and the next number is greater",
		store: badRaise(func(*memory.Store) raiseFunc {
			return func(context.Context, string, string, uint64) (bool, error) { return true, nil }
		}),
	},
	{
		bug:    "RaiseFence lands only for a greater number",
		breaks: "RaiseFence to the present number lands",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last < to }),
	},
	{
		bug:    "RaiseFence lands once",
		breaks: "a second RaiseFence returns the same",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last < to }),
	},
	{
		bug:    "RaiseFence lowers a number",
		breaks: "RaiseFence never lowers a number",
		store:  landingIf(func(held bool, _, _ uint64) bool { return held }),
	},
	{
		bug:    "RaiseFence compares texts",
		breaks: "RaiseFence never lowers a number",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && fmt.Sprint(last) <= fmt.Sprint(to) }),
	},
	{
		bug:    "an ownership keeps its first number",
		breaks: "a second SetNXFenced has the number that RaiseFence has set",
		store: badFenced(func(m *memory.Store) fencedFunc {
			given := make(map[string]uint64)
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				_, _, held := m.Get(key)
				res, err := draw(ctx, m, key, value, ttl, n)
				if held && res.OK {
					res.Fence = given[key]
				}
				given[key] = res.Fence
				return res, err
			}
		}),
	},
	{
		bug:    "RaiseFence does not create a number",
		breaks: "RaiseFence gives a number to a key that has none",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last > 0 && last <= to }),
	},
	{
		bug:    "numbers have 14 digits",
		breaks: "numbers are exact below 2^53",
		store: misnumbered(func(_ *memory.Store, _ string, _ numbering, _ bool, right uint64) uint64 {
			return rounded(right)
		}),
	},
	{
		bug:    "RaiseFence compares the first 14 digits",
		breaks: "numbers are exact below 2^53",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && rounded(last) <= rounded(to) }),
	},
	{
		bug:    "RaiseFence raises to any number",
		breaks: "RaiseFence to 2^53 or more is a permanent error and changes nothing",
		store:  landingIf(func(held bool, last, to uint64) bool { return held && last <= to }),
	},
	{
		bug:    "RaiseFence ignores the value",
		breaks: "RaiseFence with another value does not land and changes nothing",
		store:  landingIf(func(_ bool, last, to uint64) bool { return last <= to }),
	},
	{
		bug:    "RaiseFence returns false, but raises",
		breaks: "RaiseFence with another value does not land and changes nothing",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				present, _, _ := m.Get(key)
				_, _ = m.RaiseFence(ctx, key, present, to)
				return false, nil
			}
		}),
	},
	{
		bug:    "RaiseFence ignores that the key is free",
		breaks: "RaiseFence after a release does not land",
		store:  landingIf(func(_ bool, last, to uint64) bool { return last <= to }),
	},
	{
		bug:    "RaiseFence ignores that the value has expired",
		breaks: "RaiseFence after an expiry does not land",
		store:  landingIf(func(_ bool, last, to uint64) bool { return last <= to }),
	},
	{
		bug:    "RaiseFence gives the value a ttl",
		breaks: "RaiseFence leaves the value and its expiry alone",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				m.Set(key, value, time.Hour)
				return m.RaiseFence(ctx, key, value, to)
			}
		}),
	},
	{
		bug:    "RaiseFence takes a value of another type for another value",
		breaks: "RaiseFence of a value of another type is a permanent error that matches ErrWrongType",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				landed, err := m.RaiseFence(ctx, key, value, to)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return landed, err
			}
		}),
	},
	{
		bug:    "RaiseFence of another type is not permanent",
		breaks: "RaiseFence of a value of another type is a permanent error that matches ErrWrongType",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				landed, err := m.RaiseFence(ctx, key, value, to)
				if errors.Is(err, backends.ErrWrongType) {
					err = backends.ErrWrongType
				}
				return landed, err
			}
		}),
	},
	{
		bug:    "RaiseFence looks at its ctx too late",
		breaks: "RaiseFence with a ctx that is done returns the error of the ctx and changes nothing",
		store: badRaise(func(m *memory.Store) raiseFunc {
			return func(ctx context.Context, key, value string, to uint64) (bool, error) {
				landed, err := m.RaiseFence(background, key, value, to)
				return landed, errors.Join(err, ctx.Err())
			}
		}),
	},
}

func rounded(number uint64) uint64 {
	f, _ := strconv.ParseFloat(strconv.FormatFloat(float64(number), 'g', 14, 64), 64)
	return uint64(f)
}

var fencedManyDoubles = []broken[backends.FencedStore]{
	{
		bug:    "a counter is found by the key without its spaces",
		breaks: "every key has numbers of its own",
		store:  countedBy(strings.TrimSpace),
	},
	{
		bug:    "a counter is found by the key's hash tag",
		breaks: "every key has numbers of its own",
		store: countedBy(func(key string) string {
			if _, rest, ok := strings.Cut(key, "{"); ok {
				if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
					return tag
				}
			}
			return key
		}),
	},
	{
		bug:    "a counter has the key of another lock",
		breaks: "what the store keeps beside a key does not affect a lock of that name",
		beside: func(key string) []string { return []string{key + ":fence"} },
		store: badFenced(func(m *memory.Store) fencedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
				text, _, found := m.Get(key + ":fence")
				last, err := strconv.ParseUint(text, 10, 64)
				if found && err != nil {
					return backends.Result{}, err
				}
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.OK {
					res.Fence = last + 1
					m.Set(key+":fence", fmt.Sprint(res.Fence), 0)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a number is drawn before the grant",
		breaks: "concurrent grants of a key have rising numbers",
		store: badFenced(func(m *memory.Store) fencedFunc {
			var drawn atomic.Uint64
			return func(ctx context.Context, key, value string, ttl time.Duration, _ numbering) (backends.Result, error) {
				number := drawn.Add(1)
				time.Sleep(leap * time.Duration(1000-number%1000)) // then they come in another order
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.OK {
					res.Fence = number
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNXFenced looks, and numbers later",
		breaks: "concurrent SetNXFenced calls with the same value all have the same number",
		store: func(m *memory.Store) backends.FencedStore {
			c := &counted{Store: m, numbers: make(map[string]uint64)}
			return fencedDouble{
				Store: m,
				setNXFenced: func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
					_, _, held := m.Get(key)
					time.Sleep(leap)
					if !held {
						m.Delete(key) // this makes it a new ownership
					}
					return draw(ctx, c, key, value, ttl, n)
				},
			}
		},
	},
	{
		bug:    "RaiseFence looks, and acts later",
		breaks: "of concurrent RaiseFence calls the greatest number remains",
		store: func(m *memory.Store) backends.FencedStore {
			c := &counted{Store: m, numbers: make(map[string]uint64)}
			return leapingRaise{c}
		},
	},
}

type leapingRaise struct{ *counted }

func (s leapingRaise) RaiseFence(_ context.Context, key, value string, to uint64) (bool, error) {
	s.mu.Lock()
	last := s.numbers[key]
	s.mu.Unlock()
	if present, _, ok := s.Get(key); !ok || present != value || last > to {
		return false, nil
	}
	time.Sleep(leap * time.Duration(1000-to)) // then the greatest number is the first
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers[key] = to
	return true, nil
}
