package backendtest

import (
	"context"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

// badEvict replaces Evict.
func badEvict(f func(m *memory.Store) evictFunc) func(*memory.Store) InspectedStore {
	return func(m *memory.Store) InspectedStore { return inspectDouble{Store: m, evict: f(m)} }
}

// evicting changes what Evict is told.
func evicting(change func(m *memory.Store, key string, seen *string, e *backends.Eviction)) func(*memory.Store) InspectedStore {
	return badEvict(func(m *memory.Store) evictFunc {
		return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
			change(m, key, &seen, &e)
			return m.Evict(ctx, key, seen, e)
		}
	})
}

// afterEvict does something to a key that was evicted.
func afterEvict(do func(m *memory.Store, key string, e backends.Eviction)) func(*memory.Store) InspectedStore {
	return badEvict(func(m *memory.Store) evictFunc {
		return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
			ok, err := m.Evict(ctx, key, seen, e)
			if ok {
				do(m, key, e)
			}
			return ok, err
		}
	})
}

// whatever evicts what is there now.
func whatever(m *memory.Store, key string, seen *string, _ *backends.Eviction) {
	if s, err := m.Inspect(background, key); err == nil && len(s.Holds) > 0 {
		*seen = s.Holds[0].Print
	}
}

func always(m *memory.Store, key string, seen *string, e *backends.Eviction) { e.Now = true }

func force(m *memory.Store, key string, seen *string, e *backends.Eviction) { e.Foreign = true }

// altering is a store whose Inspect shows something else of a hold.
func altering(change func(h *backends.Hold)) func(*memory.Store) InspectedStore {
	return showing(func(s *backends.State) {
		for i := range s.Holds {
			change(&s.Holds[i])
		}
	})
}

const (
	evictPrints = "each hold has a print, which stays the same and does nothing without Evict"
	evictCloses = "an evicted hold is over for its holder, and keeps others out as long as it would have lived"
	evictKnown  = "an eviction is known to the holder that it ended and to no other, and callers are told its label"
	evictShared = "an evicted shared hold keeps its room, and leaves the other holds alone"
	evictNow    = "with Now an evicted key is free at once, and its watchers are woken"
	evictForeig = "a value that is no token is Foreign, and is evicted only with Foreign"
	evictQueue  = "with Now an evicted key goes to the head of its queue, and otherwise its waiters keep waiting"
	evictInput  = "Evict without a print, or with a label that is none, is a permanent error"
)

var evictDoubles = []broken[InspectedStore]{
	{
		bug: "the print is the label", breaks: evictPrints,
		store: altering(func(h *backends.Hold) { h.Print = backends.PrintOf(h.Holder) }),
	},
	{
		bug: "the print is the end of the hold", breaks: evictPrints,
		store: altering(func(h *backends.Hold) { h.Print += h.Left.String() }),
	},
	{
		bug: "the print releases", breaks: evictPrints,
		store: func(m *memory.Store) InspectedStore {
			return deletingDouble{inspectDouble{Store: m}}
		},
	},
	{
		bug: "an eviction leaves a text of its own", breaks: evictKnown,
		store: afterEvict(func(m *memory.Store, key string, e backends.Eviction) {
			_, left, _ := m.Get(key)
			m.Set(key, e.Value("another print"), left)
		}),
	},
	{
		bug: "callers are not told of an eviction", breaks: evictKnown,
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				res.Holder, _ = backends.EvictedBy(res.Holder)
				return res, err
			}}
		},
	},
	{
		bug: "callers are not told of the eviction of a shared hold", breaks: evictKnown,
		store: func(m *memory.Store) InspectedStore {
			return inspectDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				res.Holder = ""
				return res, err
			}}
		},
	},
	{bug: "an evicted key is free", breaks: evictCloses, store: evicting(always)},
	{
		bug: "an eviction closes the key for a second", breaks: evictCloses,
		store: afterEvict(func(m *memory.Store, key string, _ backends.Eviction) {
			value, _, _ := m.Get(key)
			m.Set(key, value, time.Second)
		}),
	},
	{
		bug: "an eviction changes nothing", breaks: evictCloses,
		store: badEvict(func(*memory.Store) evictFunc {
			return func(context.Context, string, string, backends.Eviction) (bool, error) { return true, nil }
		}),
	},
	{
		bug: "an eviction has no label", breaks: evictCloses,
		store: evicting(func(_ *memory.Store, _ string, _ *string, e *backends.Eviction) { e.By = "" }),
	},
	{
		bug: "an evicted hold is shown as a hold", breaks: evictCloses,
		store: altering(func(h *backends.Hold) { h.Evicted = false }),
	},
	{
		bug: "an evicted key opens too early", breaks: "an evicted key opens when the hold would have ended, and not before",
		store: afterEvict(func(m *memory.Store, key string, _ backends.Eviction) {
			value, left, _ := m.Get(key)
			m.Set(key, value, left/2)
		}),
	},
	{
		bug: "an evicted key opens too late", breaks: "an evicted key opens when the hold would have ended, and not before",
		store: afterEvict(func(m *memory.Store, key string, _ backends.Eviction) {
			value, left, _ := m.Get(key)
			m.Set(key, value, 2*left)
		}),
	},
	{
		bug:    "the end of a hold is part of its print",
		breaks: "a hold that was renewed since it was seen is evicted, and keeps others out until its new end",
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				if _, left, _ := m.Get(key); left > 15*time.Second {
					return false, nil
				}
				return m.Evict(ctx, key, seen, e)
			}
		}),
	},
	{bug: "any hold is evicted", breaks: "Evict leaves a hold alone that has another print", store: evicting(whatever)},
	{
		bug: "Now is ignored", breaks: evictNow,
		store: evicting(func(_ *memory.Store, _ string, _ *string, e *backends.Eviction) { e.Now = false }),
	},
	{
		bug: "Now wakes nobody", breaks: evictNow,
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				e.Now = false
				ok, err := m.Evict(ctx, key, seen, e)
				if ok {
					m.Set(key, "", time.Nanosecond)
					time.Sleep(time.Nanosecond)
				}
				return ok, err
			}
		}),
	},
	{
		bug: "Now passes over the queue", breaks: evictQueue,
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				now := e.Now
				e.Now = false
				ok, err := m.Evict(ctx, key, seen, e)
				if ok && now {
					m.Delete(key)
				}
				return ok, err
			}
		}),
	},
	{bug: "an evicted key goes to the head of its queue at once", breaks: evictQueue, store: evicting(always)},
	{
		bug: "an evicted key stays closed", breaks: "an evicted key has a print of its own, by which Evict opens it",
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				if s, _ := m.Inspect(ctx, key); len(s.Holds) > 0 && s.Holds[0].Evicted {
					return false, nil
				}
				return m.Evict(ctx, key, seen, e)
			}
		}),
	},
	{
		bug: "an evicted key keeps its print", breaks: "an evicted key has a print of its own, by which Evict opens it",
		store: evicting(whatever),
	},
	{
		bug: "an eviction takes the number back", breaks: "numbers rise after an eviction",
		store: func(m *memory.Store) InspectedStore {
			return countingDouble{inspectDouble{Store: m}}
		},
	},
	{bug: "whatever is there is evicted", breaks: evictForeig, store: evicting(force)},
	{
		bug: "everything is a token", breaks: evictForeig,
		store: altering(func(h *backends.Hold) { h.Foreign = false }),
	},
	{
		bug: "26 letters are a token wherever they stand", breaks: evictForeig,
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				if value, _, _ := m.Get(key); len(value) > 26 {
					e.Foreign = true
				}
				return m.Evict(ctx, key, seen, e)
			}
		}),
	},
	{
		bug: "nothing foreign is evicted", breaks: evictForeig,
		store: evicting(func(_ *memory.Store, _ string, _ *string, e *backends.Eviction) { e.Foreign = false }),
	},
	{
		bug: "a text without expiry is removed with Foreign", breaks: "a text without expiry has a print, and is removed only with Foreign and Now",
		store: evicting(func(_ *memory.Store, _ string, _ *string, e *backends.Eviction) { e.Now = e.Now || e.Foreign }),
	},
	{
		bug: "a text without expiry has no print", breaks: "a text without expiry has a print, and is removed only with Foreign and Now",
		store: showing(func(s *backends.State) { s.Print = "" }),
	},
	{
		bug: "a list is a free key", breaks: "Evict of a value of another type is an error that matches ErrWrongType",
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				ok, _ := m.Evict(ctx, key, seen, e)
				return ok, nil
			}
		}),
	},
	{bug: "the room of an evicted hold is free", breaks: evictShared, store: evicting(always)},
	{
		bug: "an evicted hold loses its slot", breaks: evictShared,
		store: altering(func(h *backends.Hold) {
			if h.Evicted {
				h.Slot = -1
			}
		}),
	},
	{
		bug: "the first hold is evicted", breaks: evictShared,
		store: evicting(func(m *memory.Store, key string, seen *string, e *backends.Eviction) {
			if s, err := m.Inspect(background, key); err == nil && s.Holding > 1 {
				*seen = s.Holds[0].Print
			}
		}),
	},
	{
		bug: "the last hold is evicted", breaks: evictShared,
		store: evicting(func(m *memory.Store, key string, seen *string, _ *backends.Eviction) {
			if s, _ := m.Inspect(background, key); len(s.Holds) > 1 {
				*seen = s.Holds[len(s.Holds)-1].Print
			}
		}),
	},
	{
		bug:    "the room of an evicted hold is free at once",
		breaks: "the room of an evicted shared hold opens when the hold would have ended, and not before",
		store:  evicting(always),
	},
	{
		bug:    "the room of an evicted hold stays closed",
		breaks: "the room of an evicted shared hold opens when the hold would have ended, and not before",
		store: afterEvict(func(m *memory.Store, key string, _ backends.Eviction) {
			_, _ = m.Enter(background, key, "forever", 30*time.Second, backends.Admission{})
		}),
	},
	{
		bug: "the room of an evicted hold goes to nobody", breaks: "with Now the room of an evicted shared hold goes to the waiters that fit",
		store: evicting(func(_ *memory.Store, _ string, _ *string, e *backends.Eviction) { e.Now = false }),
	},
	{bug: "any shared hold is evicted", breaks: "a shared hold that is no token is Foreign, and is evicted only with Foreign", store: evicting(force)},
	{
		bug:    "Evict removes a foreign value that it refuses",
		breaks: "Evict leaves a value of the type of holds without expiry alone",
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				ok, err := m.Evict(ctx, key, seen, e)
				if err != nil {
					m.Delete(key)
				}
				return ok, err
			}
		}),
	},
	{
		bug: "no print is an eviction of nothing", breaks: evictInput,
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(ctx context.Context, key, seen string, e backends.Eviction) (bool, error) {
				if seen == "" {
					return false, nil
				}
				return m.Evict(ctx, key, seen, e)
			}
		}),
	},
	{
		bug: "labels are cut", breaks: evictInput,
		store: evicting(func(_ *memory.Store, _ string, _ *string, e *backends.Eviction) {
			if e.By, _, _ = strings.Cut(e.By, "@"); !backends.ValidHolder(e.By) {
				e.By = ""
			}
		}),
	},
	{
		bug: "Evict ignores its ctx", breaks: "Evict with a ctx that is done changes nothing, and is the error of the ctx",
		store: badEvict(func(m *memory.Store) evictFunc {
			return func(_ context.Context, key, seen string, e backends.Eviction) (bool, error) {
				return m.Evict(background, key, seen, e)
			}
		}),
	},
}

// deletingDouble takes a print for the token.
type deletingDouble struct{ inspectDouble }

func (d deletingDouble) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	if present, _, ok := d.Get(key); ok && backends.PrintOf(present) == value {
		value = present
	}
	return d.Store.DeleteIf(ctx, key, value)
}

// countingDouble numbers from 1 again after an eviction.
type countingDouble struct{ inspectDouble }

func (d countingDouble) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	r, err := d.Store.SetNXNumbered(ctx, key, value, ttl, t)
	if r.OK {
		r.Fence = 1
	}
	return r, err
}
