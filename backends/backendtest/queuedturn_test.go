package backendtest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

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
