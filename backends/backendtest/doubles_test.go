package backendtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// doubles are stores that break a sentence. The doubles of another interface are in the test file
// of that interface.
var doubles = slices.Concat(setNXDoubles, expireIfDoubles, deleteIfDoubles, contextDoubles, concurrencyDoubles,
	watchDoubles, foreignDoubles, byteDoubles)

var background = context.Background() // for stores that ignore their ctx

// A broken store has one bug, and breaks a sentence.
type broken[S any] struct {
	bug, breaks     string
	store           func(m *memory.Store) S
	noWatch, noLeft bool // of its harness
	beside          func(key string) []string
}

type brokenStore = broken[backends.Store]

// double is a memory store with some methods replaced.
type double struct {
	*memory.Store
	setNX    setNXFunc
	expireIf expireIfFunc
	deleteIf deleteIfFunc
	watch    watchFunc
}

type (
	setNXFunc    = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error)
	expireIfFunc = func(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	deleteIfFunc = func(ctx context.Context, key, value string) (bool, error)
	watchFunc    = func(ctx context.Context, key string, wake func()) error
)

func (d double) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	if d.setNX != nil {
		return d.setNX(ctx, key, value, ttl)
	}
	return d.Store.SetNX(ctx, key, value, ttl)
}

func (d double) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	if d.expireIf != nil {
		return d.expireIf(ctx, key, value, ttl)
	}
	return d.Store.ExpireIf(ctx, key, value, ttl)
}

func (d double) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	if d.deleteIf != nil {
		return d.deleteIf(ctx, key, value)
	}
	return d.Store.DeleteIf(ctx, key, value)
}

func (d double) Watch(ctx context.Context, key string, wake func()) error {
	if d.watch != nil {
		return d.watch(ctx, key, wake)
	}
	return d.Store.Watch(ctx, key, wake)
}

// Each constructor replaces one method of a store in memory by the func that f returns.

func badSetNX(f func(m *memory.Store) setNXFunc) func(*memory.Store) backends.Store {
	return func(m *memory.Store) backends.Store { return double{Store: m, setNX: f(m)} }
}

func badExpireIf(f func(m *memory.Store) expireIfFunc) func(*memory.Store) backends.Store {
	return func(m *memory.Store) backends.Store { return double{Store: m, expireIf: f(m)} }
}

func badDeleteIf(f func(m *memory.Store) deleteIfFunc) func(*memory.Store) backends.Store {
	return func(m *memory.Store) backends.Store { return double{Store: m, deleteIf: f(m)} }
}

func badWatch(f func(m *memory.Store) watchFunc) func(*memory.Store) backends.Store {
	return func(m *memory.Store) backends.Store { return double{Store: m, watch: f(m)} }
}

// badKeys is a store that mistakes a key for another key.
func badKeys(mistake func(key string) string) func(*memory.Store) backends.Store {
	return func(m *memory.Store) backends.Store {
		return double{
			Store: m,
			setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, mistake(key), value, ttl)
			},
			expireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, mistake(key), value, ttl)
			},
			deleteIf: func(ctx context.Context, key, value string) (bool, error) {
				return m.DeleteIf(ctx, mistake(key), value)
			},
		}
	}
}

// badMatch is a store for which two values are equal if same says so.
func badMatch(same func(present, value string) bool) func(*memory.Store) backends.Store {
	return func(m *memory.Store) backends.Store {
		mistake := func(key, value string) string {
			if present, _, ok := m.Get(key); ok && same(present, value) {
				return present
			}
			return value
		}
		return double{
			Store: m,
			expireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, key, mistake(key, value), ttl)
			},
			deleteIf: func(ctx context.Context, key, value string) (bool, error) {
				return m.DeleteIf(ctx, key, mistake(key, value))
			},
		}
	}
}

func deleteAnything(m *memory.Store) deleteIfFunc {
	return func(_ context.Context, key, _ string) (bool, error) {
		_, _, ok := m.Get(key)
		m.Delete(key)
		return ok, nil
	}
}

func unsupported(context.Context, string, func()) error { return errors.ErrUnsupported }

func withoutLeft(m *memory.Store) setNXFunc {
	return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
		res, err := m.SetNX(ctx, key, value, ttl)
		res.Left = 0
		return res, err
	}
}
