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

var turnDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "nobody is woken",
		breaks: "DeleteIf wakes whoever has waited longest, and reserves the key for him",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, _ func()) error {
				return m.WatchQueued(ctx, key, waiter, func() {})
			}
		}),
	},
	{
		bug:    "all are woken, and the key is free",
		breaks: "DeleteIf wakes whoever has waited longest, and reserves the key for him",
		store:  badTurn(freeing),
	},
	{
		bug:    "a reserved key is whoever's who deletes it",
		breaks: "while a key is reserved it is refused to all others, with no more Left than the Reservation",
		store: badTurn(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				if isReserved(m, key) {
					m.Delete(key)
					return true, nil
				}
				return m.DeleteIf(ctx, key, value)
			}
		}),
	},
	{
		bug:    "a reservation lasts a second",
		breaks: "while a key is reserved it is refused to all others, with no more Left than the Reservation",
		store:  lasting(time.Second),
	},
	{
		bug:    "whoever's turn it is has the key for the rest of the reservation",
		breaks: "whoever's turn it is has the key for the ttl that he asks for",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if isReservedFor(m, key, t.Waiter) {
					ttl = backends.Reservation
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
	{
		bug:    "a reservation lasts half as long as it should",
		breaks: "a reservation that is not taken ends, not before its time, and then the key is free",
		store:  lasting(backends.Reservation / 2),
	},
	{
		bug:    "a reservation does not end",
		breaks: "a reservation that is not taken ends, not before its time, and then the key is free",
		store:  lasting(0),
	},
	{
		bug:    "only whoever's turn it is is woken",
		breaks: "the next in line is woken when a reservation was not taken",
		store:  badWait(onlyInTurn),
	},
	{
		bug:    "whoever has had his turn is the next again",
		breaks: "whoever does not take his turn has lost his place",
		store: func(m *memory.Store) backends.QueuedStore {
			had := make(map[string]bool)
			return badQueue(func(m *memory.Store) setNXQueuedFunc {
				return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
					res, err := m.SetNXQueued(ctx, key, value, ttl, t)
					if had[t.Waiter] && res.Position > 0 {
						res.Position = 1
					}
					had[t.Waiter] = true
					return res, err
				}
			})(m)
		},
	},
	{
		bug:    "a key with a queue is refused, also to who has it",
		breaks: "a repeated SetNXQueued of the same value is granted, whoever waits",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if present, left, _ := m.Get(key); t.InOrder && present == value {
					return backends.Result{Left: left}, nil
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
}

// lasting is a store whose reservations last that long.
func lasting(long time.Duration) func(*memory.Store) backends.QueuedStore {
	return badTurn(func(m *memory.Store) deleteIfFunc {
		return func(ctx context.Context, key, value string) (bool, error) {
			ok, err := m.DeleteIf(ctx, key, value)
			if present, _, _ := m.Get(key); ok && isReserved(m, key) {
				m.Set(key, present, long)
			}
			return ok, err
		}
	})
}

func onlyInTurn(m *memory.Store) watchQueuedFunc {
	return func(ctx context.Context, key, waiter string, wake func()) error {
		return m.WatchQueued(ctx, key, waiter, func() {
			if isReservedFor(m, key, waiter) {
				wake()
			}
		})
	}
}

var orderDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "every free key is for the first of its queue",
		breaks: "without an order a free key is granted to whoever asks, whoever waits",
		store: misordered(func(t backends.Turn) backends.Turn {
			t.InOrder = true
			return t
		}),
	},
	{
		bug:    "a free key is whoever's who asks",
		breaks: "in order, a free key with a queue is refused to others and reserved for the first, who is woken",
		store:  misordered(outOfOrder),
	},
	{
		bug:    "a free key with a queue is refused, and stays free",
		breaks: "in order, a free key with a queue is refused to others and reserved for the first, who is woken",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				res, err := m.SetNXQueued(ctx, key, value, ttl, t)
				if isReserved(m, key) {
					m.Delete(key)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "whoever asks for a free key with a queue gets no place",
		breaks: "in order, another waiter who asks for a free key keeps his place",
		store: misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
			if t.InOrder {
				right.Position = 0
			}
			return right
		}),
	},
	{
		bug:    "a free key is reserved for the first, also when it is he who asks",
		breaks: "in order, a free key is granted to the first of its queue",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if _, _, held := m.Get(key); !held && t.InOrder {
					t.Waiter = ""
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
	{
		bug:    "a key whose reservation was not taken is whoever's who asks",
		breaks: "in order, a key whose reservation was not taken is reserved for the next",
		store: func(m *memory.Store) backends.QueuedStore {
			passed := make(map[string]bool)
			return queuedDouble{
				Store: m,
				deleteIf: func(ctx context.Context, key, value string) (bool, error) {
					passed[key] = true
					return m.DeleteIf(ctx, key, value)
				},
				setNXQueued: func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
					t.InOrder = t.InOrder && !passed[key]
					return m.SetNXQueued(ctx, key, value, ttl, t)
				},
			}
		},
	},
}

func outOfOrder(t backends.Turn) backends.Turn {
	t.InOrder = false
	return t
}

var queuedGoneDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "a watch does not end, nor a place",
		breaks: "a waiter whose watch ends gives up his place, and is woken no more",
		store:  badWait(endless),
	},
	{
		bug:    "a waiter whose watch has ended has his turn",
		breaks: "a waiter whose watch has ended is passed over at once",
		store:  badWait(endless),
	},
	{
		bug:    "what is reserved for a waiter who goes stays so",
		breaks: "what is reserved for a waiter goes to the next at once when his watch ends",
		store:  badWait(lingering),
	},
	{
		bug:    "what is reserved for the last waiter stays so when he goes",
		breaks: "what is reserved for the last of a queue is free at once when his watch ends, and those who watch are woken",
		store:  badWait(lingering),
	},
	{
		bug:    "only whoever's turn it is is woken, when others go",
		breaks: "whoever is next by then is woken when a reservation was not taken",
		store:  badWait(onlyInTurn),
	},
}

// lingering is a watch that ends when no key is reserved for its waiter.
func lingering(m *memory.Store) watchQueuedFunc {
	return func(ctx context.Context, key, waiter string, wake func()) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		watching, end := context.WithCancel(background)
		context.AfterFunc(ctx, func() {
			if isReservedFor(m, key, waiter) {
				time.Sleep(backends.Reservation)
			}
			end()
		})
		return m.WatchQueued(watching, key, waiter, wake)
	}
}
