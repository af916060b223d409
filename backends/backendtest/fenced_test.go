package backendtest

import (
	"context"
	"slices"
	"sync"
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

// misnumbered is a store that numbers its grants by what wrong makes of the right number. again tells that value
// was there already.
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

// forgetful is a store that keeps a number only as long as the value, by numbers of its own.
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

// counted is a store whose numbers are in a map of their own, by what the functions say.
type counted struct {
	*memory.Store
	mu      sync.Mutex
	numbers map[string]uint64
	name    func(key string) string               // nil: key itself
	lands   func(held bool, last, to uint64) bool // nil: as it must be
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
