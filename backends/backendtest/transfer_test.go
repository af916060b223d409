package backendtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestEverySentenceOfTransferStoresFails(t *testing.T) {
	everySentenceFails(t, ofTransfer, transferDoubles, func(m *memory.Store) SharedOutside { return m })
}

type (
	transferFunc func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error)
	holdFunc     func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error)
)

// transferDouble is a memory store with another Transfer or TransferHold.
type transferDouble struct {
	*memory.Store
	transfer transferFunc
	hold     holdFunc
}

func (d transferDouble) Transfer(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
	if d.transfer != nil {
		return d.transfer(ctx, key, from, to, ttl, numbered)
	}
	return d.Store.Transfer(ctx, key, from, to, ttl, numbered)
}

func (d transferDouble) TransferHold(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	if d.hold != nil {
		return d.hold(ctx, key, from, to, ttl, group, numbered)
	}
	return d.Store.TransferHold(ctx, key, from, to, ttl, group, numbered)
}

// moving is a store with another Transfer, which may use that of the store.
func moving(transfer func(m *memory.Store) transferFunc) func(*memory.Store) backends.TransferStore {
	return func(m *memory.Store) backends.TransferStore { return transferDouble{Store: m, transfer: transfer(m)} }
}

// movingHolds is a store with another TransferHold.
func movingHolds(hold func(m *memory.Store) holdFunc) func(*memory.Store) backends.TransferStore {
	return func(m *memory.Store) backends.TransferStore { return transferDouble{Store: m, hold: hold(m)} }
}

// reenter is a TransferHold of two steps: the old hold leaves and the new one enters as a says.
func reenter(m *memory.Store, a backends.Admission) holdFunc {
	return func(ctx context.Context, key, from, to string, ttl time.Duration, _ string, numbered bool) (backends.Result, error) {
		if ok, err := m.Leave(ctx, key, from); err != nil || !ok && !holds(m, key, to) {
			state, _ := m.Inspect(ctx, key)
			return backends.Result{Holds: state.Holding}, err
		}
		a := a
		a.Numbered = numbered
		res, err := m.Enter(ctx, key, to, ttl, a)
		res.Room = 0
		return res, err
	}
}

// outliving is a store that moves a value or hold which has ended, if value or hold says so of the key.
type outliving struct {
	*memory.Store
	value, hold func(backends.State) bool
	live        *sync.Map // the values and holds that no call has ended
}

// hasty is a store where a value or a hold that was transferred is in the way until its first end.
type hasty struct {
	*memory.Store
	value bool
	ends  *sync.Map // by key
}

func (h hasty) ended(key string) {
	if at, found := h.ends.Load(key); found && time.Now().After(at.(time.Time)) {
		h.Delete(key)
	}
}

func (h hasty) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	h.ended(key)
	return h.Store.SetNX(ctx, key, value, ttl)
}

func (h hasty) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	h.ended(key)
	return h.Store.Enter(ctx, key, token, ttl, a)
}

func (h hasty) Transfer(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
	_, left, _ := h.Get(key)
	res, err := h.Store.Transfer(ctx, key, from, to, ttl, numbered)
	if res.OK && h.value {
		h.ends.LoadOrStore(key, time.Now().Add(left))
	}
	return res, err
}

func (h hasty) TransferHold(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	_, left, _ := h.Get(key)
	res, err := h.Store.TransferHold(ctx, key, from, to, ttl, group, numbered)
	if res.OK && !h.value {
		h.ends.LoadOrStore(key, time.Now().Add(left))
	}
	return res, err
}

func never(backends.State) bool    { return false }
func isFree(s backends.State) bool { return s.Holding == 0 }
func isHeld(s backends.State) bool { return s.Holding > 0 }

func outlive(value, hold func(backends.State) bool) func(*memory.Store) backends.TransferStore {
	return func(m *memory.Store) backends.TransferStore { return outliving{m, value, hold, new(sync.Map)} }
}

func (l outliving) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	res, err := l.Store.SetNX(ctx, key, value, ttl)
	if res.OK {
		l.live.Store(key+value, true)
	}
	return res, err
}

func (l outliving) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	res, err := l.Store.Enter(ctx, key, token, ttl, a)
	if res.OK {
		l.live.Store(key+token, true)
	}
	return res, err
}

func (l outliving) Leave(ctx context.Context, key, token string) (bool, error) {
	l.live.Delete(key + token)
	return l.Store.Leave(ctx, key, token)
}

func (l outliving) Transfer(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
	res, err := l.Store.Transfer(ctx, key, from, to, ttl, numbered)
	_, was := l.live.Load(key + from)
	if state, _ := l.Inspect(ctx, key); err == nil && !res.OK && was && l.value(state) {
		l.Set(key, to, ttl)
		res = backends.Result{OK: true}
	}
	if res.OK {
		l.live.Delete(key + from)
	}
	return res, err
}

func (l outliving) TransferHold(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
	res, err := l.Store.TransferHold(ctx, key, from, to, ttl, group, numbered)
	_, was := l.live.Load(key + from)
	if state, _ := l.Inspect(ctx, key); err == nil && !res.OK && was && l.hold(state) {
		res, err = l.Store.Enter(ctx, key, to, ttl, backends.Admission{Group: group, Numbered: numbered})
	}
	if res.OK {
		l.live.Delete(key + from)
	}
	return res, err
}

var transferDoubles = []broken[backends.TransferStore]{
	{
		bug:    "the value stays what it was",
		breaks: "Transfer stores the value in the place of the other, for ttl from then",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, _ string, ttl time.Duration, _ bool) (backends.Result, error) {
				ok, err := m.ExpireIf(ctx, key, from, ttl)
				return backends.Result{OK: ok}, err
			}
		}),
	},
	{
		bug:    "the life stays what it was",
		breaks: "Transfer stores the value in the place of the other, for ttl from then",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, _ time.Duration, numbered bool) (backends.Result, error) {
				return m.Transfer(ctx, key, from, to, time.Millisecond, numbered)
			}
		}),
	},
	{
		bug:    "SetNX goes by the end that a value had before",
		breaks: "a value or hold that was transferred keeps others out after the end that it had first",
		store:  func(m *memory.Store) backends.TransferStore { return hasty{Store: m, value: true, ends: new(sync.Map)} },
	},
	{
		bug:    "Enter goes by the end that a hold had before",
		breaks: "a value or hold that was transferred keeps others out after the end that it had first",
		store:  func(m *memory.Store) backends.TransferStore { return hasty{Store: m, ends: new(sync.Map)} },
	},
	{
		bug:    "the life is ttl, also if it was longer",
		breaks: "Transfer never shortens the life of the key",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				res, err := m.Transfer(ctx, key, from, to, ttl, numbered)
				if res.OK {
					m.Set(key, to, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a free key is taken",
		breaks: "Transfer from a value that key does not hold changes nothing, also if the key is free",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				if _, _, found := m.Get(key); !found {
					return m.SetNX(ctx, key, to, ttl)
				}
				return m.Transfer(ctx, key, from, to, ttl, numbered)
			}
		}),
	},
	{
		bug:    "whoever asks gets the key",
		breaks: "Transfer from a value that key does not hold changes nothing, also if the key is free",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				if value, _, found := m.Get(key); found {
					from = value
				}
				return m.Transfer(ctx, key, from, to, ttl, numbered)
			}
		}),
	},
	{
		bug:    "a value that has ended is moved, if the key is free",
		breaks: "Transfer from a value that has ended changes nothing, whether the key is free or has a new holder",
		store:  outlive(isFree, never),
	},
	{
		bug:    "a value that has ended is moved over the next holder",
		breaks: "Transfer from a value that has ended changes nothing, whether the key is free or has a new holder",
		store:  outlive(isHeld, never),
	},
	{
		bug:    "the old value is accepted for ever",
		breaks: "after Transfer the old value neither extends nor removes the key, and moves it no more",
		store: moving(func(m *memory.Store) transferFunc {
			moved := map[string]bool{}
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				if value, _, found := m.Get(key); found && moved[key] {
					from = value
				}
				res, err := m.Transfer(ctx, key, from, to, ttl, numbered)
				moved[key] = moved[key] || res.OK
				return res, err
			}
		}),
	},
	{
		bug:    "the second arrival is refused",
		breaks: "a Transfer that arrives twice is granted twice",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				if value, left, found := m.Get(key); found && value == to {
					return backends.Result{Left: left}, nil
				}
				return m.Transfer(ctx, key, from, to, ttl, numbered)
			}
		}),
	},
	{
		bug:    "it looks first, and stores then",
		breaks: "of concurrent Transfers from one value exactly one is granted",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				value, _, found := m.Get(key)
				if !found || value != from {
					return m.Transfer(ctx, key, from, to, ttl, numbered)
				}
				time.Sleep(time.Millisecond)
				m.Set(key, to, ttl)
				return backends.Result{OK: true}, nil
			}
		}),
	},
	{
		bug:    "any ttl is good",
		breaks: "a Transfer with a bad ttl or a ctx that is done, or of a value of another type, changes nothing",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				return m.Transfer(ctx, key, from, to, min(max(ttl, time.Millisecond), backends.DefaultMaxTTL), numbered)
			}
		}),
	},
	{
		bug:    "a ctx that is done is used",
		breaks: "a Transfer with a bad ttl or a ctx that is done, or of a value of another type, changes nothing",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				return m.Transfer(context.WithoutCancel(ctx), key, from, to, ttl, numbered)
			}
		}),
	},
	{
		bug:    "the number is that of the old hold",
		breaks: "a numbered Transfer has a greater number, and the same when it arrives twice",
		store: moving(func(m *memory.Store) transferFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, numbered bool) (backends.Result, error) {
				last, _ := m.Inspect(ctx, key)
				res, err := m.Transfer(ctx, key, from, to, ttl, false)
				if res.OK && numbered {
					res.Fence = last.Fence
				}
				return res, err
			}
		}),
	},
	{
		bug:    "all holds move",
		breaks: "TransferHold moves one hold with its life, and no other",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				if res.OK {
					_, _ = m.Leave(ctx, key, "other")
				}
				return res, err
			}
		}),
	},
	{
		bug:    "the old hold stays",
		breaks: "TransferHold moves one hold with its life, and no other",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				if res.OK {
					_, err = m.Enter(ctx, key, from, ttl, backends.Admission{Group: "group"})
				}
				return res, err
			}
		}),
	},
	{
		bug:    "the hold enters anew, with its ttl",
		breaks: "TransferHold never shortens the life of a hold",
		store:  movingHolds(func(m *memory.Store) holdFunc { return reenter(m, of("ann")) }),
	},
	{
		bug:    "a hold that is not there enters",
		breaks: "TransferHold from a hold that is not there changes nothing, also if the key is free",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, _, to string, ttl time.Duration, _ string, numbered bool) (backends.Result, error) {
				return m.Enter(ctx, key, to, ttl, backends.Admission{Numbered: numbered})
			}
		}),
	},
	{
		bug:    "a hold that has ended is moved, if the key is free",
		breaks: "TransferHold from a hold that has ended changes nothing, whether the key is free, has a new holder or another hold",
		store:  outlive(never, isFree),
	},
	{
		bug:    "a hold that has ended is moved beside others",
		breaks: "TransferHold from a hold that has ended changes nothing, whether the key is free, has a new holder or another hold",
		store:  outlive(never, isHeld),
	},
	{
		bug:    "it looks for the hold first, and moves it then",
		breaks: "of concurrent TransferHolds from one hold exactly one is granted",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				found := holds(m, key, from)
				time.Sleep(leap)
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				if err == nil && !res.OK && found {
					return m.Enter(ctx, key, to, ttl, backends.Admission{Group: group, Numbered: numbered})
				}
				return res, err
			}
		}),
	},
	{
		bug:    "any ttl is good for a hold",
		breaks: "a TransferHold with a bad ttl or a ctx that is done, or of a value of another type, changes nothing",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				return m.TransferHold(ctx, key, from, to, min(max(ttl, time.Millisecond), backends.DefaultMaxTTL), group, numbered)
			}
		}),
	},
	{
		bug:    "a ctx that is done is used for a hold",
		breaks: "a TransferHold with a bad ttl or a ctx that is done, or of a value of another type, changes nothing",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				return m.TransferHold(context.WithoutCancel(ctx), key, from, to, ttl, group, numbered)
			}
		}),
	},
	{
		bug:    "a value of another type is no hold",
		breaks: "a TransferHold with a bad ttl or a ctx that is done, or of a value of another type, changes nothing",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a hold moves to another group",
		breaks: "TransferHold to another group is a permanent error that matches ErrOtherGroup, and changes nothing",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, _ string, numbered bool) (backends.Result, error) {
				state, _ := m.Inspect(ctx, key)
				return m.TransferHold(ctx, key, from, to, ttl, state.Group, numbered)
			}
		}),
	},
	{
		bug:    "a hold of another group is nobody's",
		breaks: "TransferHold to another group is a permanent error that matches ErrOtherGroup, and changes nothing",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				if errors.Is(err, backends.ErrOtherGroup) {
					return backends.Result{Holds: 2}, nil
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value is held",
		breaks: "TransferHold finds a value of the type of holds without expiry Foreign, and leaves it alone",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				res.Foreign = false
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value is removed",
		breaks: "TransferHold finds a value of the type of holds without expiry Foreign, and leaves it alone",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				if res.Foreign {
					m.Delete(key)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "the hold gets another slot",
		breaks: "a hold that moves keeps its slot",
		store:  movingHolds(func(m *memory.Store) holdFunc { return reenter(m, slotted(3)) }),
	},
	{
		bug:    "a hold that moves keeps its number",
		breaks: "a numbered hold that moves alone begins an epoch; beside others it has the number of theirs",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				last, _ := m.Inspect(ctx, key)
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, false)
				if res.OK && numbered {
					res.Fence = last.Fence
				}
				return res, err
			}
		}),
	},
	{
		bug:    "every move begins an epoch",
		breaks: "a numbered hold that moves alone begins an epoch; beside others it has the number of theirs",
		store: movingHolds(func(m *memory.Store) holdFunc {
			return func(ctx context.Context, key, from, to string, ttl time.Duration, group string, numbered bool) (backends.Result, error) {
				there := holds(m, key, to)
				res, err := m.TransferHold(ctx, key, from, to, ttl, group, numbered)
				if res.OK && numbered && !there && res.Holds > 1 {
					res.Fence++
				}
				return res, err
			}
		}),
	},
}
