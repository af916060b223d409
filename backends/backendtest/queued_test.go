package backendtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var queuedDoubles = slices.Concat(placeDoubles, turnDoubles, orderDoubles, queuedGoneDoubles, queuedInputDoubles,
	queuedManyDoubles)

// queuedDouble is a memory store with its queues replaced.
type queuedDouble struct {
	*memory.Store
	setNX       setNXFunc
	deleteIf    deleteIfFunc
	setNXQueued setNXQueuedFunc
	watchQueued watchQueuedFunc
}

type (
	setNXQueuedFunc = func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error)
	watchQueuedFunc = func(ctx context.Context, key, waiter string, wake func()) error
)

func (d queuedDouble) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return double{Store: d.Store, setNX: d.setNX}.SetNX(ctx, key, value, ttl)
}

func (d queuedDouble) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	return double{Store: d.Store, deleteIf: d.deleteIf}.DeleteIf(ctx, key, value)
}

func (d queuedDouble) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if d.setNXQueued != nil {
		return d.setNXQueued(ctx, key, value, ttl, t)
	}
	return d.Store.SetNXQueued(ctx, key, value, ttl, t)
}

func (d queuedDouble) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if d.watchQueued != nil {
		return d.watchQueued(ctx, key, waiter, wake)
	}
	return d.Store.WatchQueued(ctx, key, waiter, wake)
}

func badQueue(f func(m *memory.Store) setNXQueuedFunc) func(*memory.Store) backends.QueuedStore {
	return func(m *memory.Store) backends.QueuedStore { return queuedDouble{Store: m, setNXQueued: f(m)} }
}

func badTurn(f func(m *memory.Store) deleteIfFunc) func(*memory.Store) backends.QueuedStore {
	return func(m *memory.Store) backends.QueuedStore { return queuedDouble{Store: m, deleteIf: f(m)} }
}

func badWait(f func(m *memory.Store) watchQueuedFunc) func(*memory.Store) backends.QueuedStore {
	return func(m *memory.Store) backends.QueuedStore { return queuedDouble{Store: m, watchQueued: f(m)} }
}

// misplaced is a store that tells what wrong makes of the right answer.
func misplaced(wrong func(key string, t backends.Turn, right backends.Result) backends.Result) func(*memory.Store) backends.QueuedStore {
	return badQueue(func(m *memory.Store) setNXQueuedFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
			res, err := m.SetNXQueued(ctx, key, value, ttl, t)
			if err != nil {
				return res, err
			}
			return wrong(key, t, res), nil
		}
	})
}

// misordered is a store that takes a request for what wrong makes of it.
func misordered(wrong func(t backends.Turn) backends.Turn) func(*memory.Store) backends.QueuedStore {
	return badQueue(func(m *memory.Store) setNXQueuedFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
			return m.SetNXQueued(ctx, key, value, ttl, wrong(t))
		}
	})
}

// Who a key is reserved for, in the words of package memory.

const reservedFor = "\x00reserved for "

func isReserved(m *memory.Store, key string) bool {
	value, _, _ := m.Get(key)
	return strings.HasPrefix(value, reservedFor)
}

func isReservedFor(m *memory.Store, key, waiter string) bool {
	value, _, _ := m.Get(key)
	return value == reservedFor+waiter
}

var placeDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "places count from 0",
		breaks: "whoever is refused takes the last place, and keeps it when he asks again",
		store: misplaced(func(_ string, _ backends.Turn, right backends.Result) backends.Result {
			right.Position--
			return right
		}),
	},
	{
		bug:    "whoever asks again stands behind the others",
		breaks: "whoever is refused takes the last place, and keeps it when he asks again",
		store: func(m *memory.Store) backends.QueuedStore {
			var queue []string
			return misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
				queue = append(slices.DeleteFunc(queue, func(w string) bool { return w == t.Waiter }), t.Waiter)
				right.Position = len(queue)
				return right
			})(m)
		},
	},
	{
		bug:    "whoever believes that the key is free keeps his place when it is",
		breaks: "whoever believes that the key is free has no place if it is, and one if it is not",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if t.Free {
					if r, err := m.SetNX(ctx, key, value, ttl); r.OK || err != nil {
						return r, err
					}
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
	{
		bug:    "whoever believes that the key is free gets no place if it is not",
		breaks: "whoever believes that the key is free has no place if it is, and one if it is not",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if t.Free {
					return m.SetNX(ctx, key, value, ttl)
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
	{
		bug:    "nobody has a place",
		breaks: "whoever asks for nobody takes no place",
		store: misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
			if t.Waiter == "" && !right.OK {
				right.Position = 1
			}
			return right
		}),
	},
	{
		bug:    "whoever asks has a place",
		breaks: "a waiter who is not watched for gets no place",
		store: misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
			if t.Waiter != "" && !right.OK {
				right.Position = max(right.Position, 1)
			}
			return right
		}),
	},
	{
		bug:    "whoever is granted the key keeps his place",
		breaks: "a waiter who is granted the key has no place any more",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if res, err := m.SetNX(ctx, key, value, ttl); res.OK || err != nil {
					return res, err
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
	{
		bug:    "one queue for all keys",
		breaks: "every key has a queue of its own",
		store: func(m *memory.Store) backends.QueuedStore {
			keys := make(map[string]bool)
			return misplaced(func(key string, _ backends.Turn, right backends.Result) backends.Result {
				keys[key] = true
				right.Position += len(keys) - 1
				return right
			})(m)
		},
	},
	{
		bug:    "a grant ends all places",
		breaks: "a place outlives the value that was in the way",
		store: func(m *memory.Store) backends.QueuedStore {
			var ends []context.CancelFunc
			return queuedDouble{
				Store: m,
				watchQueued: func(ctx context.Context, key, waiter string, wake func()) error {
					ctx, end := context.WithCancel(ctx)
					ends = append(ends, end)
					return m.WatchQueued(ctx, key, waiter, wake)
				},
				setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					for _, end := range ends {
						end()
					}
					time.Sleep(time.Nanosecond) // for the ends to be noticed
					return m.SetNX(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "nobody waits behind a value without expiry",
		breaks: "a waiter has a place behind a value without expiry too, which is refused as foreign",
		store: misplaced(func(_ string, _ backends.Turn, right backends.Result) backends.Result {
			if right.Foreign {
				right.Position = 0
			}
			return right
		}),
	},
}

var queuedInputDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "an @ in a waiter is dropped when it asks",
		breaks: "a waiter with an @ is refused, and nothing is stored",
		store: misordered(func(t backends.Turn) backends.Turn {
			t.Waiter = strings.ReplaceAll(t.Waiter, "@", "")
			return t
		}),
	},
	{
		bug:    "an @ in a waiter is dropped when it is watched for",
		breaks: "a waiter with an @ is refused, and nothing is stored",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, wake func()) error {
				return m.WatchQueued(ctx, key, strings.ReplaceAll(waiter, "@", "at"), wake)
			}
		}),
	},
	{
		bug:    "nobody is watched for",
		breaks: "WatchQueued for nobody is refused",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, wake func()) error {
				return m.WatchQueued(ctx, key, waiter+"nobody", wake)
			}
		}),
	},
	{
		bug:    "WatchQueued ignores its ctx",
		breaks: "WatchQueued with a ctx that is already done returns its error",
		store:  badWait(endless),
	},
}

// endless is a watch that does not end.
func endless(m *memory.Store) watchQueuedFunc {
	return func(_ context.Context, key, waiter string, wake func()) error {
		return m.WatchQueued(background, key, waiter, wake)
	}
}

var queuedManyDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "a place is looked up, and then taken",
		breaks: "of many who ask at once each has a place of his own",
		store: func(m *memory.Store) backends.QueuedStore {
			var places atomic.Int64
			return misplaced(func(_ string, _ backends.Turn, right backends.Result) backends.Result {
				n := places.Load()
				time.Sleep(leap)
				places.Store(n + 1)
				right.Position = int(n) + 1
				return right
			})(m)
		},
	},
	{
		bug:    "everybody is woken, and the last one is the quickest",
		breaks: "many who wait have the key one after the other, in the order of their places",
		store: func(m *memory.Store) backends.QueuedStore {
			var mu sync.Mutex
			asked := 0
			return queuedDouble{
				Store:    m,
				deleteIf: freeing(m),
				setNXQueued: func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
					mu.Lock()
					asked++
					pause := leap * time.Duration(callers-asked%callers)
					mu.Unlock()
					time.Sleep(pause)
					t.InOrder = false
					return m.SetNXQueued(ctx, key, value, ttl, t)
				},
			}
		},
	},
	{
		bug:    "those who have gone have their turn, and nobody looks whether they took it",
		breaks: "nobody is stuck when others give up",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(_ context.Context, key, waiter string, wake func()) error {
				return m.WatchQueued(background, key, waiter, func() {
					if isReservedFor(m, key, waiter) {
						wake()
					}
				})
			}
		}),
	},
}

// freeing wakes everybody, and reserves the key for nobody.
func freeing(m *memory.Store) deleteIfFunc {
	return func(ctx context.Context, key, value string) (bool, error) {
		ok, err := m.DeleteIf(ctx, key, value)
		if ok {
			m.Delete(key)
		}
		return ok, err
	}
}
