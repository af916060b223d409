package backendtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

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
		bug:    "a counter is where a lock may be",
		breaks: "what the store keeps beside a key is not in the way of another",
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
		breaks: "of concurrent grants of a key each has a greater number than the one before",
		store: badFenced(func(m *memory.Store) fencedFunc {
			var drawn atomic.Uint64
			return func(ctx context.Context, key, value string, ttl time.Duration, _ numbering) (backends.Result, error) {
				number := drawn.Add(1)
				time.Sleep(leap * time.Duration(1000-number%1000)) // so that they come in another order
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.OK {
					res.Fence = number
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNXFenced looks, and then numbers",
		breaks: "concurrent SetNXFenced with the same value all have the same number",
		store: func(m *memory.Store) backends.FencedStore {
			c := &counted{Store: m, numbers: make(map[string]uint64)}
			return fencedDouble{
				Store: m,
				setNXFenced: func(ctx context.Context, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
					_, _, held := m.Get(key)
					time.Sleep(leap)
					if !held {
						m.Delete(key) // which makes it a new ownership
					}
					return draw(ctx, c, key, value, ttl, n)
				},
			}
		},
	},
	{
		bug:    "RaiseFence looks and then leaps",
		breaks: "of concurrent RaiseFence the greatest remains",
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
	time.Sleep(leap * time.Duration(1000-to)) // so that the greatest leaps first
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers[key] = to
	return true, nil
}
