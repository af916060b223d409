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

var queuedDoubles = slices.Concat(positionDoubles, turnDoubles, lateDoubles, orderDoubles, queuedGoneDoubles, queuedInputDoubles,
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

// clearing is a store that forgets all waiters when a holder renews.
type clearing struct {
	*memory.Store
	spares func(key string) bool // when it does not; nil: never
	ends   []context.CancelFunc
}

func (s *clearing) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	ctx, end := context.WithCancel(ctx)
	s.ends = append(s.ends, end)
	return s.Store.WatchQueued(ctx, key, waiter, wake)
}

func (s *clearing) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	s.forget(key)
	return s.Store.ExpireIf(ctx, key, value, ttl)
}

func (s *clearing) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	s.forget(key)
	return s.Store.Renew(ctx, key, token, ttl)
}

func (s *clearing) forget(key string) {
	if s.spares != nil && s.spares(key) {
		return
	}
	for _, end := range s.ends {
		end()
	}
	time.Sleep(time.Nanosecond) // until the store has noticed the ends
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

// misplaced is a store that changes the right answer by wrong.
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

// misordered is a store that changes the Turn of a call by wrong.
func misordered(wrong func(t backends.Turn) backends.Turn) func(*memory.Store) backends.QueuedStore {
	return badQueue(func(m *memory.Store) setNXQueuedFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
			return m.SetNXQueued(ctx, key, value, ttl, wrong(t))
		}
	})
}

// The value of a reserved key in package memory, before the name of the waiter.

const reservedFor = "\x00reserved for "

func isReserved(m *memory.Store, key string) bool {
	value, _, _ := m.Get(key)
	return strings.HasPrefix(value, reservedFor)
}

func isReservedFor(m *memory.Store, key, waiter string) bool {
	value, _, _ := m.Get(key)
	return value == reservedFor+waiter
}

var positionDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "positions count from 0",
		breaks: "a waiter that finds the key held takes the last position, and keeps it at its next attempt",
		store: misplaced(func(_ string, _ backends.Turn, right backends.Result) backends.Result {
			right.Position--
			return right
		}),
	},
	{
		bug:    "a second attempt moves the waiter behind the others",
		breaks: "a waiter that finds the key held takes the last position, and keeps it at its next attempt",
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
		bug:    "a renewal removes all positions",
		breaks: "ExpireIf leaves the queue alone",
		store:  func(m *memory.Store) backends.QueuedStore { return &clearing{Store: m} },
	},
	{
		bug:    "no waiter has a position",
		breaks: "an attempt without a Waiter takes no position",
		store: misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
			if t.Waiter == "" && !right.OK {
				right.Position = 1
			}
			return right
		}),
	},
	{
		bug:    "every attempt has a position",
		breaks: "a waiter without a WatchQueued gets no position",
		store: misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
			if t.Waiter != "" && !right.OK {
				right.Position = max(right.Position, 1)
			}
			return right
		}),
	},
	{
		bug:    "a waiter that is granted the key keeps its position",
		breaks: "a waiter that is granted the key has no position any more",
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
		bug:    "a grant removes all positions",
		breaks: "a position outlives the value that the waiter found",
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
					time.Sleep(time.Nanosecond) // until the store has noticed the ends
					return m.SetNX(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "no waiter has a position behind a value without expiry",
		breaks: "a waiter takes a position behind a value without expiry too, which is Foreign",
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
		bug:    "an @ in a Waiter is dropped by SetNXQueued",
		breaks: "a Waiter with an @ is a permanent error, and nothing is stored",
		store: misordered(func(t backends.Turn) backends.Turn {
			t.Waiter = strings.ReplaceAll(t.Waiter, "@", "")
			return t
		}),
	},
	{
		bug:    "an @ in a waiter is dropped by WatchQueued",
		breaks: "a Waiter with an @ is a permanent error, and nothing is stored",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, wake func()) error {
				return m.WatchQueued(ctx, key, strings.ReplaceAll(waiter, "@", "at"), wake)
			}
		}),
	},
	{
		bug:    "no waiter is watched for",
		breaks: "WatchQueued without a waiter is a permanent error",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, wake func()) error {
				return m.WatchQueued(ctx, key, waiter+"nobody", wake)
			}
		}),
	},
	{
		bug:    "WatchQueued ignores its ctx",
		breaks: "WatchQueued with a ctx that is done returns the error of the ctx",
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
		bug:    "a position is looked up, and taken later",
		breaks: "waiters that ask at the same time each get a position of their own",
		store: func(m *memory.Store) backends.QueuedStore {
			var positions atomic.Int64
			return misplaced(func(_ string, _ backends.Turn, right backends.Result) backends.Result {
				n := positions.Load()
				time.Sleep(leap)
				positions.Store(n + 1)
				right.Position = int(n) + 1
				return right
			})(m)
		},
	},
	{
		bug:    "all waiters are woken, and the last one is the quickest",
		breaks: "waiters are granted the key one after the other, in the order of their positions",
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
		bug:    "the end of a watch ends the value of its waiter",
		breaks: "the end of a watch after the grant to its waiter leaves the value alone",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, wake func()) error {
				context.AfterFunc(ctx, func() { _, _ = m.DeleteIf(background, key, "of "+waiter) })
				return m.WatchQueued(ctx, key, waiter, wake)
			}
		}),
	},
	{
		bug:    "waiters that left get reservations, which nobody checks",
		breaks: "waiters that leave the queue do not block the others",
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

// freeing wakes all waiters, and reserves the key for none.
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
		bug:    "no waiter is woken",
		breaks: "DeleteIf wakes the head of the queue, and reserves the key for it",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, _ func()) error {
				return m.WatchQueued(ctx, key, waiter, func() {})
			}
		}),
	},
	{
		bug:    "all waiters are woken, and the key is free",
		breaks: "DeleteIf wakes the head of the queue, and reserves the key for it",
		store:  badTurn(freeing),
	},
	{
		bug:    "any caller deletes a reserved key",
		breaks: "a reserved key is held for all other callers, and Left is at most Reservation if the waiter is near",
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
		breaks: "a reserved key is held for all other callers, and Left is at most Reservation if the waiter is near",
		store:  lasting(time.Second),
	},
	{
		bug:    "the head of the queue has the key for the rest of the reservation",
		breaks: "the head of the queue takes its reservation for the ttl of its attempt",
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
		bug:    "a reservation lasts half of its time",
		breaks: "a reservation that is not taken ends when Reservation is over, not before, and the key is free",
		store:  lasting(backends.Reservation / 2),
	},
	{
		bug:    "a reservation does not end",
		breaks: "a reservation that is not taken ends when Reservation is over, not before, and the key is free",
		store:  lasting(0),
	},
	{
		bug:    "only the waiter with the reservation is woken",
		breaks: "the next waiter is woken when a reservation was not taken",
		store:  badWait(onlyInTurn),
	},
	{
		bug:    "a key with a queue is held, even for its holder",
		breaks: "a second SetNXQueued of the same value is granted, even if others wait",
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

var lateDoubles = []broken[backends.QueuedStore]{
	{
		bug:    "a late waiter loses its position",
		breaks: "a late waiter keeps its position, and nobody waits for it until its next attempt",
		store:  passedOver,
	},
	{
		bug:    "a waiter is late for ever",
		breaks: "an attempt of a late waiter makes it the head again, also if the key is held",
		store:  passedOver,
	},
	{
		bug:    "only the second waiter is woken beside the one with the reservation",
		breaks: "if the next reservation is not taken either, the first waiter that is not late is woken",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			var mu sync.Mutex
			waiters := map[string]int{} // by key
			return func(ctx context.Context, key, waiter string, wake func()) error {
				mu.Lock()
				defer mu.Unlock()
				waiters[key]++
				second := waiters[key] == 2
				return m.WatchQueued(ctx, key, waiter, func() {
					if second || isReservedFor(m, key, waiter) {
						wake()
					}
				})
			}
		}),
	},
	{
		bug:    "nobody gets past ten waiters that make no attempt",
		breaks: "a waiter behind many that make no attempt has the key after a reservation for each, and another the next time at once",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if state, err := m.Inspect(ctx, key); err == nil && t.InOrder && state.Waiting > 10 {
					return backends.Result{Left: backends.Reservation, Position: state.Waiting}, nil
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
	{
		bug:    "behind forty waiters nobody is woken",
		breaks: "a waiter behind many that make no attempt has the key after a reservation for each, and another the next time at once",
		store: badWait(func(m *memory.Store) watchQueuedFunc {
			return func(ctx context.Context, key, waiter string, wake func()) error {
				if state, err := m.Inspect(ctx, key); err == nil && state.Waiting >= 40 {
					wake = func() {}
				}
				return m.WatchQueued(ctx, key, waiter, wake)
			}
		}),
	},
	{
		bug:    "a late waiter is the last again",
		breaks: "with InOrder, a late waiter is granted a free key before the waiters behind it",
		store:  passedOver,
	},
	{
		bug:    "a late waiter keeps a free key from others",
		breaks: "with InOrder, a free key whose waiters are all late is granted to any caller",
		store: badQueue(func(m *memory.Store) setNXQueuedFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
				if state, err := m.Inspect(ctx, key); err == nil && t.Waiter == "" && state.Waiting > 0 {
					return backends.Result{Left: time.Millisecond}, nil
				}
				return m.SetNXQueued(ctx, key, value, ttl, t)
			}
		}),
	},
	{
		bug:    "only the waiter with the reservation is woken when all are late",
		breaks: "a release wakes the waiters if all of them are late, and the key is free",
		store:  badWait(onlyInTurn),
	},
	{
		bug:    "a reservation is as long for all",
		breaks: "a reservation lasts for three round trips of its waiter, at most MaxReservation and its ttl",
		store: misordered(func(t backends.Turn) backends.Turn {
			t.RoundTrip = 0
			return t
		}),
	},
	{
		bug:    "a reservation has no limit",
		breaks: "a reservation lasts for three round trips of its waiter, at most MaxReservation and its ttl",
		store:  lasting(3 * time.Hour),
	},
	{
		bug:    "a late waiter is back without an attempt",
		breaks: "a late waiter that makes no attempt for LateLimit loses its position",
		store: func(m *memory.Store) backends.QueuedStore {
			var first string
			return misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
				if first == "" {
					first = t.Waiter
				}
				if t.Waiter == first && right.Position > 0 {
					right.Position = 1
				}
				return right
			})(m)
		},
	},
}

// passedOver is a store whose waiters lose their position if they do not take their reservation.
func passedOver(m *memory.Store) backends.QueuedStore {
	var mu sync.Mutex // of the maps
	had, watches, ends := make(map[string]bool), make(map[string]func()), make(map[string]context.CancelFunc)
	watch := func(key, waiter string, wake func()) error {
		ctx, end := context.WithCancel(background)
		mu.Lock()
		watches[waiter], ends[waiter] = wake, end
		mu.Unlock()
		return m.WatchQueued(ctx, key, waiter, func() {
			reserved := isReservedFor(m, key, waiter)
			mu.Lock()
			had[waiter] = had[waiter] || reserved
			mu.Unlock()
			wake()
		})
	}
	return queuedDouble{
		Store: m,
		watchQueued: func(ctx context.Context, key, waiter string, wake func()) error {
			context.AfterFunc(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				ends[waiter]()
			})
			return watch(key, waiter, wake)
		},
		setNXQueued: func(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
			reserved := isReservedFor(m, key, t.Waiter)
			mu.Lock()
			again, wake, end := had[t.Waiter] && !reserved, watches[t.Waiter], ends[t.Waiter]
			if again {
				had[t.Waiter] = false
			}
			mu.Unlock()
			if again {
				end()
				time.Sleep(time.Nanosecond) // until the store has noticed the end
				if err := watch(key, t.Waiter, wake); err != nil {
					return backends.Result{}, err
				}
			}
			return m.SetNXQueued(ctx, key, value, ttl, t)
		},
	}
}

// lasting is a store whose reservations last for long.
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
		bug:    "every free key is for the head of its queue",
		breaks: "without InOrder any caller is granted a free key, even if others wait",
		store: misordered(func(t backends.Turn) backends.Turn {
			t.InOrder = true
			return t
		}),
	},
	{
		bug:    "any caller is granted a free key",
		breaks: "with InOrder, a free key is reserved for the head of its queue, which is woken, and held for others",
		store:  misordered(outOfOrder),
	},
	{
		bug:    "a free key with a queue is held, and stays free",
		breaks: "with InOrder, a free key is reserved for the head of its queue, which is woken, and held for others",
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
		bug:    "an attempt at a free key with a queue gets no position",
		breaks: "with InOrder, a waiter that is not the head keeps its position when it asks for a free key",
		store: misplaced(func(_ string, t backends.Turn, right backends.Result) backends.Result {
			if t.InOrder {
				right.Position = 0
			}
			return right
		}),
	},
	{
		bug:    "a free key is reserved for the head, even if the head asks",
		breaks: "with InOrder, the head of the queue is granted a free key",
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
		bug:    "any caller is granted a key whose reservation was not taken",
		breaks: "with InOrder, a key whose reservation was not taken is reserved for the next waiter",
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
		bug:    "neither a watch nor a position ends",
		breaks: "a waiter whose watch ends leaves the queue, and is not woken any more",
		store:  badWait(endless),
	},
	{
		bug:    "a waiter whose watch has ended gets a reservation",
		breaks: "a release skips a waiter whose watch has ended",
		store:  badWait(endless),
	},
	{
		bug:    "the reservation of a waiter that leaves stays",
		breaks: "when the watch of a waiter ends, its reservation goes to the next waiter at once",
		store:  badWait(lingering),
	},
	{
		bug:    "the reservation of the last waiter stays when it leaves",
		breaks: "when the watch of the last waiter ends, its reservation ends at once, and watchers are woken",
		store:  badWait(lingering),
	},
	{
		bug:    "only the waiter with the reservation is woken",
		breaks: "when the head of the queue leaves, the next waiter is woken: it is the head now",
		store:  badWait(onlyInTurn),
	},
	{
		bug:    "only the waiter with the reservation is woken when others leave",
		breaks: "when a reservation was not taken, a waiter that has become the next one is woken",
		store:  badWait(onlyInTurn),
	},
}

// lingering is a watch that ends only when no key is reserved for its waiter.
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
