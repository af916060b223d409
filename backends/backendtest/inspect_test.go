package backendtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestEverySentenceOfInspectorsFails(t *testing.T) {
	everySentenceFails(t, ofInspected, slices.Concat(inspectDoubles, listDoubles, evictDoubles), func(m *memory.Store) SharedOutside { return m })
}

// inspectDouble is a memory store with some methods replaced.
type inspectDouble struct {
	*memory.Store
	inspect func(ctx context.Context, key string) (backends.State, error)
	setNX   setNXFunc
	enter   enterFunc
	list    func(ctx context.Context, prefix, after string, limit int) (backends.Page, error)
	evict   evictFunc
}

type evictFunc = func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error)

func (d inspectDouble) List(ctx context.Context, prefix, after string, limit int) (backends.Page, error) {
	if d.list != nil {
		return d.list(ctx, prefix, after, limit)
	}
	return d.Store.List(ctx, prefix, after, limit)
}

func (d inspectDouble) Evict(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
	if d.evict != nil {
		return d.evict(ctx, key, seen, e)
	}
	return d.Store.Evict(ctx, key, seen, e)
}

func (d inspectDouble) Inspect(ctx context.Context, key string) (backends.State, error) {
	if d.inspect != nil {
		return d.inspect(ctx, key)
	}
	return d.Store.Inspect(ctx, key)
}

func (d inspectDouble) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	if d.setNX != nil {
		return d.setNX(ctx, key, value, ttl)
	}
	return d.Store.SetNX(ctx, key, value, ttl)
}

func (d inspectDouble) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	if d.enter != nil {
		return d.enter(ctx, key, token, ttl, a)
	}
	return d.Store.Enter(ctx, key, token, ttl, a)
}

// showing is a store whose Inspect shows something else than what there is.
func showing(change func(s *backends.State)) func(*memory.Store) InspectedStore {
	return func(m *memory.Store) InspectedStore {
		return inspectDouble{Store: m, inspect: func(ctx context.Context, key string) (backends.State, error) {
			s, err := m.Inspect(ctx, key)
			change(&s)
			return s, err
		}}
	}
}

// watchedDouble notes the last waiter that has left.
type watchedDouble struct {
	inspectDouble
	gone *gone
}

type gone struct {
	sync.Mutex
	key, label string
}

func (d watchedDouble) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	context.AfterFunc(ctx, func() {
		d.gone.Lock()
		defer d.gone.Unlock()
		d.gone.key, d.gone.label = key, backends.HolderOf(waiter)
	})
	return d.inspectDouble.WatchQueued(ctx, key, waiter, wake)
}

// doing is a store whose Inspect does something else before it looks.
func doing(do func(m *memory.Store, key string)) func(*memory.Store) InspectedStore {
	return func(m *memory.Store) InspectedStore {
		return inspectDouble{Store: m, inspect: func(ctx context.Context, key string) (backends.State, error) {
			do(m, key)
			return m.Inspect(ctx, key)
		}}
	}
}

var inspectDoubles = []broken[InspectedStore]{
	{
		bug: "a free key has a hold", breaks: "a free key has no holds, and nobody waits for it",
		store: showing(func(s *backends.State) { s.Holding = max(s.Holding, 1) }),
	},
	{
		bug: "labels are forgotten", breaks: "a held key has one hold, with the label of its holder and its remaining life",
		store: showing(func(s *backends.State) {
			for i := range s.Holds {
				s.Holds[i].Holder = ""
			}
		}),
	},
	{
		bug: "a renewal is not told", breaks: "a held key has one hold, with the label of its holder and its remaining life",
		store: func(m *memory.Store) InspectedStore {
			ends := map[string]time.Time{}
			return inspectDouble{Store: m, inspect: func(ctx context.Context, key string) (backends.State, error) {
				s, err := m.Inspect(ctx, key)
				for i, h := range s.Holds {
					end, seen := ends[key+h.Print]
					if !seen {
						end = time.Now().Add(h.Left)
						ends[key+h.Print] = end
					}
					s.Holds[i].Left = min(h.Left, max(time.Until(end), 1))
				}
				return s, err
			}}
		},
	},
	{
		bug: "every hold has the same life", breaks: "a held key has one hold, with the label of its holder and its remaining life",
		store: showing(func(s *backends.State) {
			for i := range s.Holds {
				s.Holds[i].Left = time.Second
			}
		}),
	},
	{
		bug: "what was held stays", breaks: "a key that was released, or whose hold has ended, has no holds",
		store: func(m *memory.Store) InspectedStore {
			seen := map[string]backends.State{}
			return inspectDouble{Store: m, setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				r, err := m.SetNX(ctx, key, value, ttl)
				seen[key], _ = m.Inspect(ctx, key)
				return r, err
			}, inspect: func(ctx context.Context, key string) (backends.State, error) {
				if s, ok := seen[key]; ok {
					return s, nil
				}
				return m.Inspect(ctx, key)
			}}
		},
	},
	{
		bug: "the token is shown", breaks: "a State has no token",
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, inspect: func(ctx context.Context, key string) (backends.State, error) {
				s, err := m.Inspect(ctx, key)
				for i := range s.Holds {
					s.Holds[i].Holder, _, _ = m.Get(key)
				}
				return s, err
			}}
		},
	},
	{
		bug: "Inspect makes a hold live longer", breaks: "Inspect changes nothing",
		store: doing(func(m *memory.Store, key string) {
			if value, _, ok := m.Get(key); ok {
				m.Set(key, value, 30*time.Second)
			}
		}),
	},
	{
		bug: "a value without expiry is a hold", breaks: "a value without expiry is foreign, and no hold",
		store: showing(func(s *backends.State) {
			if s.Foreign {
				s.Foreign, s.Holding = false, 1
			}
		}),
	},
	{
		bug: "a list is a free key", breaks: "Inspect of a value of another type is an error that matches ErrWrongType",
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, inspect: func(ctx context.Context, key string) (backends.State, error) {
				s, _ := m.Inspect(ctx, key)
				return s, nil
			}}
		},
	},
	{
		bug: "a refusal names the one who asks", breaks: "a refused call has the label of the holder",
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				r, err := m.SetNX(ctx, key, value, ttl)
				if !r.OK {
					r.Holder = backends.HolderOf(value)
				}
				return r, err
			}}
		},
	},
	{
		bug: "all before a space is a label", breaks: "a label that locker.WithHolder does not take is not told",
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				r, err := m.SetNX(ctx, key, value, ttl)
				if there, _, ok := m.Get(key); ok && !r.OK {
					r.Holder, _, _ = strings.Cut(there, " ")
				}
				return r, err
			}}
		},
	},
	{
		bug: "a refusal names any holder", breaks: "a refused Enter has the label of the hold whose end would let it in",
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				r, err := m.Enter(ctx, key, token, ttl, a)
				if !r.OK {
					r.Holder = "ann"
				}
				return r, err
			}}
		},
	},
	{
		bug: "holds are listed in any order", breaks: "shared holds are listed in the order of their ends, and have their group",
		store: showing(func(s *backends.State) { slices.Reverse(s.Holds) }),
	},
	{
		bug: "the group is not told", breaks: "shared holds are listed in the order of their ends, and have their group",
		store: showing(func(s *backends.State) { s.Group = "" }),
	},
	{
		bug: "a hold that has ended is listed", breaks: "a shared hold that has ended is not told beside one that goes on",
		store: func(m *memory.Store) InspectedStore {
			var most []backends.Hold
			return showing(func(s *backends.State) {
				if len(s.Holds) >= len(most) {
					most = s.Holds
				}
				s.Holds = most
			})(m)
		},
	},
	{
		bug: "a reservation shows its group", breaks: "a reservation for a shared hold is no hold, and has no group",
		store: showing(func(s *backends.State) {
			if s.Reserved > 0 {
				s.Group = reads.Group
			}
		}),
	},
	{
		bug: "slots are not told", breaks: "a hold with a slot shows it",
		store: showing(func(s *backends.State) {
			for i := range s.Holds {
				s.Holds[i].Slot = -1
			}
		}),
	},
	{
		bug: "only what is listed is counted", breaks: "at most MaxListed holds are listed, and all are counted",
		store: showing(func(s *backends.State) { s.Holding = len(s.Holds) }),
	},
	{
		bug:    "only those are counted that are listed",
		breaks: "those that wait are listed from the head of the queue on, at most MaxListed, and all are counted",
		store:  showing(func(s *backends.State) { s.Waiting = len(s.Waiters) }),
	},
	{
		bug:    "the last is the head",
		breaks: "those that wait are listed from the head of the queue on, at most MaxListed, and all are counted",
		store:  showing(func(s *backends.State) { slices.Reverse(s.Waiters) }),
	},
	{
		bug:    "without a queue, nobody waits",
		breaks: "a store without a queue says that it does not know how many wait, and one with a queue that nobody waits",
		store: func(m *memory.Store) InspectedStore {
			return struct {
				backends.Store
				backends.Inspector
			}{m, m}
		},
	},
	{
		bug:    "an empty queue is not known",
		breaks: "a store without a queue says that it does not know how many wait, and one with a queue that nobody waits",
		store: showing(func(s *backends.State) {
			if s.Waiting == 0 {
				s.Waiting = backends.NotKnown
			}
		}),
	},
	{
		bug: "all are told who ever waited", breaks: "a waiter that has left the queue is not told",
		store: func(m *memory.Store) InspectedStore {
			gone := new(gone)
			return watchedDouble{inspectDouble{Store: m, inspect: func(ctx context.Context, key string) (backends.State, error) {
				s, err := m.Inspect(ctx, key)
				gone.Lock()
				defer gone.Unlock()
				if gone.key == key {
					s.Waiting, s.Waiters = s.Waiting+1, append([]string{gone.label}, s.Waiters...)
				}
				return s, err
			}}, gone}
		},
	},
	{
		bug: "a reservation is a hold", breaks: "a reservation is no hold, and its waiter waits no more",
		store: showing(func(s *backends.State) { s.Holding, s.Reserved = s.Holding+s.Reserved, 0 }),
	},
	{
		bug: "a free key has no number", breaks: "the last number of a key is told, also when nobody holds it",
		store: showing(func(s *backends.State) {
			if s.Holding == 0 {
				s.Fence = 0
			}
		}),
	},
	{
		bug: "Inspect ignores its ctx", breaks: "Inspect with a ctx that is done is the error of the ctx",
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, inspect: func(_ context.Context, key string) (backends.State, error) {
				return m.Inspect(background, key)
			}}
		},
	},
}
