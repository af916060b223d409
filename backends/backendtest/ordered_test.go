package backendtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestEverySentenceOfOrderedStoresFails(t *testing.T) {
	everySentenceFails(t, ofOrdered, orderedDoubles, func(m *memory.Store) SharedOutside { return m })
}

// orderedDouble is a memory store with some methods replaced.
type orderedDouble struct {
	*memory.Store
	enter enterFunc
	leave leaveFunc
	watch func(ctx context.Context, key, waiter string, wake func()) error
}

func (d orderedDouble) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	if d.enter != nil {
		return d.enter(ctx, key, token, ttl, a)
	}
	return d.Store.Enter(ctx, key, token, ttl, a)
}

func (d orderedDouble) Leave(ctx context.Context, key, token string) (bool, error) {
	if d.leave != nil {
		return d.leave(ctx, key, token)
	}
	return d.Store.Leave(ctx, key, token)
}

func (d orderedDouble) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	if d.watch != nil {
		return d.watch(ctx, key, waiter, wake)
	}
	return d.Store.WatchQueued(ctx, key, waiter, wake)
}

// staying is an ordered store whose waiters never leave the queue.
func staying(m *memory.Store) backends.OrderedStore {
	return orderedDouble{Store: m, watch: func(_ context.Context, key, waiter string, wake func()) error {
		return m.WatchQueued(background, key, waiter, wake)
	}}
}

// entering is an ordered store whose Enter gets another Admission.
func entering(change func(a *backends.Admission)) func(*memory.Store) backends.OrderedStore {
	return func(m *memory.Store) backends.OrderedStore {
		return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
			change(&a)
			return m.Enter(ctx, key, token, ttl, a)
		}}
	}
}

// wakesSome passes on no more than most wakes of each Leave.
type wakesSome struct {
	*memory.Store
	most int
	mu   sync.Mutex
	left int // wakes that are passed on; negative: any number
}

func (s *wakesSome) Leave(ctx context.Context, key, token string) (bool, error) {
	s.mu.Lock()
	s.left = s.most
	s.mu.Unlock()
	return s.Store.Leave(ctx, key, token)
}

func (s *wakesSome) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	return s.Store.WatchQueued(ctx, key, waiter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.left--; s.left >= 0 {
			wake()
		}
	})
}

// oneKind mistakes a waiter of one kind for one of the other kind. Its maps have the keys with waiters.
type oneKind struct {
	*memory.Store
	forValues, forHolds map[string]bool
}

func (s oneKind) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	if t.InOrder && s.forHolds[key] {
		return backends.Result{Left: backends.Reservation}, nil
	}
	res, err := s.Store.SetNXQueued(ctx, key, value, ttl, t)
	if res.Position > 0 && s.forValues != nil {
		s.forValues[key] = true
	}
	return res, err
}

func (s oneKind) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	res, err := s.Store.Enter(ctx, key, token, ttl, a)
	if res.Position > 0 && s.forHolds != nil {
		s.forHolds[key] = true
	}
	if err == nil && s.forValues[key] {
		err = errors.New("a waiter without a group")
	}
	return res, err
}

var orderedDoubles = []broken[backends.OrderedStore]{
	{
		bug:    "an attempt takes no position",
		breaks: "a waiter that is refused takes the last position, and keeps it at its next attempt",
		store:  entering(func(a *backends.Admission) { a.Waiter = "" }),
	},
	{
		bug:    "Leave wakes one waiter",
		breaks: "Leave wakes the waiters from the head of the queue on that fit together, and no other",
		store:  func(m *memory.Store) backends.OrderedStore { return &wakesSome{Store: m, most: 1} },
	},
	{
		bug:    "Leave wakes two waiters",
		breaks: "Leave wakes the waiters from the head of the queue on that fit together, and no other",
		store:  func(m *memory.Store) backends.OrderedStore { return &wakesSome{Store: m, most: 2} },
	},
	{
		bug:    "a Leave after another wakes nobody",
		breaks: "the Leave of the last of two readers wakes a writer at the head",
		store: func(m *memory.Store) backends.OrderedStore {
			var leaves atomic.Int64
			return orderedDouble{Store: m,
				leave: func(ctx context.Context, key, token string) (bool, error) {
					leaves.Add(1)
					return m.Leave(ctx, key, token)
				},
				watch: func(ctx context.Context, key, waiter string, wake func()) error {
					return m.WatchQueued(ctx, key, waiter, func() {
						if leaves.Load() < 2 {
							wake()
						}
					})
				}}
		},
	},
	{
		bug:    "readers and writers are of one group",
		breaks: "Leave wakes the waiters from the head of the queue on that fit together, and no other",
		store: entering(func(a *backends.Admission) {
			a.Group = ""
			if a.Waiter != "" {
				a.Limit = 0
			}
		}),
	},
	{
		bug:    "a reservation keeps nobody out",
		breaks: "a reservation keeps others out, and is in no Holds or Room",
		store:  entering(func(a *backends.Admission) { a.Limit++ }),
	},
	{
		bug:    "a reservation is a hold",
		breaks: "a reservation keeps others out, and is in no Holds or Room",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if !res.OK && res.Left <= backends.Reservation {
					res.Holds++
				}
				return res, err
			}}
		},
	},
	{
		bug:    "a renewal removes all positions",
		breaks: "Renew leaves the queue and the reservations alone",
		store:  func(m *memory.Store) backends.OrderedStore { return &clearing{Store: m} },
	},
	{
		bug:    "a renewal ends the reservations",
		breaks: "Renew leaves the queue and the reservations alone",
		store: func(m *memory.Store) backends.OrderedStore {
			return &clearing{Store: m, spares: func(key string) bool {
				state, _ := m.Inspect(background, key)
				return state.Reserved == 0
			}}
		},
	},
	{
		bug:    "a reservation is a hold for certain",
		breaks: "a waiter with a reservation is refused if as many hold as its limit by then",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if state, err := m.Inspect(ctx, key); err == nil && a.Waiter != "" && state.Reserved > 0 {
					a.Limit = 0
				}
				return m.Enter(ctx, key, token, ttl, a)
			}}
		},
	},
	{
		bug:    "nobody gets past ten waiters that make no attempt",
		breaks: "a reader behind many writers that make no attempt enters after a reservation for each, and a writer the next time at once",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if state, err := m.Inspect(ctx, key); err == nil && state.Waiting > 10 && state.Holding == 0 {
					return backends.Result{Left: backends.Reservation, Position: state.Waiting}, nil
				}
				return m.Enter(ctx, key, token, ttl, a)
			}}
		},
	},
	{
		bug:    "a waiter has the key for the rest of its reservation",
		breaks: "a hold that enters by a reservation lives for its ttl, also after the end of its watch",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if state, err := m.Inspect(ctx, key); err == nil && a.Waiter != "" && state.Reserved > 0 {
					ttl = backends.Reservation
				}
				return m.Enter(ctx, key, token, ttl, a)
			}}
		},
	},
	{
		bug:    "the end of a watch ends the hold of its waiter",
		breaks: "a hold that enters by a reservation lives for its ttl, also after the end of its watch",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, watch: func(ctx context.Context, key, waiter string, wake func()) error {
				context.AfterFunc(ctx, func() { _, _ = m.Leave(background, key, "of "+waiter) })
				return m.WatchQueued(ctx, key, waiter, wake)
			}}
		},
	},
	{
		bug:    "a waiter has the number of the epoch before",
		breaks: "a hold that enters by a reservation begins an epoch if there is no other hold",
		store: func(m *memory.Store) backends.OrderedStore {
			var last uint64
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if a.Waiter == "" {
					last = res.Fence
				} else if res.OK {
					res.Fence = last
				}
				return res, err
			}}
		},
	},
	{
		bug:    "a reservation begins an epoch",
		breaks: "a hold that enters by a reservation begins an epoch if there is no other hold",
		store: func(m *memory.Store) backends.OrderedStore {
			var more uint64
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if res.OK {
					more++
					res.Fence += more
				}
				return res, err
			}}
		},
	},
	{
		bug:    "a waiter has slot 0",
		breaks: "a waiter gets the lowest slot that no other hold has",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if a.Waiter != "" {
					res.Slot = 0
				}
				return res, err
			}}
		},
	},
	{
		bug:    "a reservation is for whoever comes",
		breaks: "a reservation that is not taken ends, and the next waiter can have the key",
		store: func(m *memory.Store) backends.OrderedStore {
			free := map[string]bool{}
			return orderedDouble{Store: m,
				leave: func(ctx context.Context, key, token string) (bool, error) {
					ok, err := m.Leave(ctx, key, token)
					free[key] = ok
					return ok, err
				},
				enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
					if free[key] {
						m.Delete(key)
						a.InOrder = false
					}
					return m.Enter(ctx, key, token, ttl, a)
				}}
		},
	},
	{
		bug:    "readers pass a writer that was late",
		breaks: "a late waiter keeps others out again after its next attempt, although it is refused",
		store:  entering(func(a *backends.Admission) { a.InOrder = a.InOrder && a.Group != "read" }),
	},
	{
		bug:    "a reservation is as long for all",
		breaks: "a reservation lasts for three round trips of its waiter",
		store:  entering(func(a *backends.Admission) { a.RoundTrip = 0 }),
	},
	{
		bug:    "a waiter that leaves keeps its position and its reservation",
		breaks: "a waiter that leaves gives up its position, and its reservation goes to the next",
		store:  staying,
	},
	{
		bug:    "a writer that leaves still keeps readers out",
		breaks: "when the head of the queue leaves, the waiters behind it that fit now are woken",
		store:  staying,
	},
	{
		bug:    "a head that leaves stays the head",
		breaks: "when the head of the queue leaves, a waiter behind it that does not fit is woken: it is the head now",
		store:  staying,
	},
	{
		bug:    "there is no order",
		breaks: "in order, a call is refused behind a waiter that does not fit; otherwise it enters",
		store:  entering(func(a *backends.Admission) { a.InOrder = false }),
	},
	{
		bug:    "a waiter overtakes at its second attempt",
		breaks: "in order, a call is refused behind a waiter that does not fit; otherwise it enters",
		store: func(m *memory.Store) backends.OrderedStore {
			asked := map[string]bool{}
			return entering(func(a *backends.Admission) {
				a.InOrder = a.InOrder && !(asked[a.Waiter] && a.Waiter != "")
				asked[a.Waiter] = true
			})(m)
		},
	},
	{
		bug:    "two holds let any call in",
		breaks: "in order, a call is refused behind a waiter that does not fit; otherwise it enters",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				state, err := m.Inspect(ctx, key)
				a.InOrder = a.InOrder && err == nil && (state.Holding < 2 || a.Waiter != "")
				return m.Enter(ctx, key, token, ttl, a)
			}}
		},
	},
	{
		bug:    "a limit above 1 knows no order",
		breaks: "in order, a call is refused behind a waiter that does not fit; otherwise it enters",
		store:  entering(func(a *backends.Admission) { a.InOrder = a.InOrder && a.Limit <= 1 }),
	},
	{
		bug:    "every call is in order",
		breaks: "in order, a call is refused behind a waiter that does not fit; otherwise it enters",
		store:  entering(func(a *backends.Admission) { a.InOrder = true }),
	},
	{
		bug:    "a hold that is there is refused",
		breaks: "a hold that is there is granted again in order, whoever waits",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if holds(m, key, token) {
					return backends.Result{Holds: 1}, nil
				}
				return m.Enter(ctx, key, token, ttl, a)
			}}
		},
	},
	{
		bug:    "an end that a caller finds wakes nobody",
		breaks: "an end that a caller finds makes room for the head of the queue",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, watch: func(ctx context.Context, key, waiter string, _ func()) error {
				return m.WatchQueued(ctx, key, waiter, func() {})
			}}
		},
	},
	{
		bug:    "an end beside a hold that lives wakes nobody",
		breaks: "an end beside a hold that lives makes room too, whether the caller that finds it is granted or refused",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, watch: func(ctx context.Context, key, waiter string, _ func()) error {
				return m.WatchQueued(ctx, key, waiter, func() {})
			}}
		},
	},
	{
		bug:    "a writer has no limit",
		breaks: "a writer is alone, however many readers and writers come at the same time",
		store:  entering(func(a *backends.Admission) { a.Limit = 0 }),
	},
	{
		bug:    "Enter cannot read a waiter for a value",
		breaks: otherKindSays,
		store: func(m *memory.Store) backends.OrderedStore {
			return oneKind{Store: m, forValues: map[string]bool{}}
		},
	},
	{
		bug:    "a waiter for a hold stays the head for those of values",
		breaks: otherKindSays,
		store: func(m *memory.Store) backends.OrderedStore {
			return oneKind{Store: m, forHolds: map[string]bool{}}
		},
	},
	{
		bug:    "any name is a name of a waiter",
		breaks: "WatchQueued without a name, or with an @ in it, is a permanent error, and so is an attempt",
		store: func(m *memory.Store) backends.OrderedStore {
			return orderedDouble{Store: m, watch: func(context.Context, string, string, func()) error { return nil }}
		},
	},
}
