package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var sharedDoubles = slices.Concat(sharedEnterDoubles, sharedRenewDoubles, sharedLeaveDoubles, admissionDoubles, slotDoubles, sharedForeignDoubles, sharedManyDoubles,
	sharedWatchDoubles())

// sharedWatchDoubles are the doubles of any store that have a bug in Watch.
func sharedWatchDoubles() (doubles []broken[backends.SharedStore]) {
	for _, d := range watchDoubles {
		doubles = append(doubles, broken[backends.SharedStore]{
			bug: d.bug, breaks: ofHolds(d.breaks), noWatch: d.noWatch,
			store: func(m *memory.Store) backends.SharedStore { return sharedDouble{Store: m, watch: d.store(m).Watch} },
		})
	}
	return append(doubles, broken[backends.SharedStore]{
		bug: "a Leave that leaves the key held wakes nobody", breaks: "Leave wakes the watchers also if other holds go on",
		store: func(m *memory.Store) backends.SharedStore {
			return sharedDouble{Store: m, watch: func(ctx context.Context, key string, wake func()) error {
				return m.Watch(ctx, key, func() {
					if state, _ := m.Inspect(background, key); state.Holding == 0 {
						wake()
					}
				})
			}}
		},
	})
}

// sharedDouble is a memory store with some methods replaced.
type sharedDouble struct {
	*memory.Store
	enter enterFunc
	renew renewFunc
	leave leaveFunc
	watch watchFunc
}

type (
	enterFunc = func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error)
	renewFunc = func(ctx context.Context, key, token string, ttl time.Duration) (bool, error)
	leaveFunc = func(ctx context.Context, key, token string) (bool, error)
)

func (d sharedDouble) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	if d.enter != nil {
		return d.enter(ctx, key, token, ttl, a)
	}
	return d.Store.Enter(ctx, key, token, ttl, a)
}

func (d sharedDouble) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	if d.renew != nil {
		return d.renew(ctx, key, token, ttl)
	}
	return d.Store.Renew(ctx, key, token, ttl)
}

func (d sharedDouble) Leave(ctx context.Context, key, token string) (bool, error) {
	if d.leave != nil {
		return d.leave(ctx, key, token)
	}
	return d.Store.Leave(ctx, key, token)
}

func (d sharedDouble) Watch(ctx context.Context, key string, wake func()) error {
	if d.watch != nil {
		return d.watch(ctx, key, wake)
	}
	return d.Store.Watch(ctx, key, wake)
}

func badEnter(f func(m *memory.Store) enterFunc) func(*memory.Store) backends.SharedStore {
	return func(m *memory.Store) backends.SharedStore { return sharedDouble{Store: m, enter: f(m)} }
}

func badRenew(f func(m *memory.Store) renewFunc) func(*memory.Store) backends.SharedStore {
	return func(m *memory.Store) backends.SharedStore { return sharedDouble{Store: m, renew: f(m)} }
}

func badLeave(f func(m *memory.Store) leaveFunc) func(*memory.Store) backends.SharedStore {
	return func(m *memory.Store) backends.SharedStore { return sharedDouble{Store: m, leave: f(m)} }
}

// afterEnter is a store that calls wrong after Enter.
func afterEnter(wrong func(m *memory.Store, key string, ttl time.Duration, res *backends.Result)) func(*memory.Store) backends.SharedStore {
	return badEnter(func(m *memory.Store) enterFunc {
		return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
			res, err := m.Enter(ctx, key, token, ttl, a)
			wrong(m, key, ttl, &res)
			return res, err
		}
	})
}

// unlimited is a without its limit.
func unlimited(a backends.Admission) backends.Admission {
	a.Limit = 0
	return a
}

// holds reports whether token is a hold of key. Its Renew changes nothing, since it never shortens.
func holds(m *memory.Store, key, token string) bool {
	ok, _ := m.Renew(background, key, token, time.Millisecond)
	return ok
}

// mistaking is a store that mistakes keys, groups or tokens.
func mistaking(key, group, token func(string) string) func(*memory.Store) backends.SharedStore {
	same := func(s string) string { return s }
	for _, f := range []*func(string) string{&key, &group, &token} {
		if *f == nil {
			*f = same
		}
	}
	return func(m *memory.Store) backends.SharedStore {
		return sharedDouble{
			Store: m,
			enter: func(ctx context.Context, k, t string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				a.Group = group(a.Group)
				return m.Enter(ctx, key(k), token(t), ttl, a)
			},
			renew: func(ctx context.Context, k, t string, ttl time.Duration) (bool, error) {
				return m.Renew(ctx, key(k), token(t), ttl)
			},
			leave: func(ctx context.Context, k, t string) (bool, error) { return m.Leave(ctx, key(k), token(t)) },
		}
	}
}

// remembering is a store that keeps a list of all holds that ever entered.
type remembering struct {
	*memory.Store
	mu     sync.Mutex
	as     map[string]backends.Admission
	tokens map[string][]string
}

func remember(m *memory.Store) *remembering {
	return &remembering{Store: m, as: make(map[string]backends.Admission), tokens: make(map[string][]string)}
}

func (r *remembering) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res, err := r.Store.Enter(ctx, key, token, ttl, a)
	if res.OK {
		r.as[key] = a
		r.tokens[key] = append(r.tokens[key], token)
	}
	return res, err
}

func enterWithoutLeft(m *memory.Store) enterFunc {
	return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
		res, err := m.Enter(ctx, key, token, ttl, a)
		res.Left = 0
		return res, err
	}
}

var sharedEnterDoubles = []broken[backends.SharedStore]{
	{
		bug:    "Enter stores nothing",
		breaks: "Enter of a free key is granted: one hold, for ttl",
		store: badEnter(func(*memory.Store) enterFunc {
			return func(context.Context, string, string, time.Duration, backends.Admission) (backends.Result, error) {
				return backends.Result{OK: true, Holds: 1}, nil
			}
		}),
	},
	{
		bug:    "holds are not counted",
		breaks: "Enter of a free key is granted: one hold, for ttl",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Holds = 0
		}),
	},
	{
		bug:    "the holds before are not counted",
		breaks: "Enter of the same owner adds a hold, and the key lives as long as its longest hold",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Holds = 1
		}),
	},
	{
		bug:    "the key lives as long as the hold that entered last",
		breaks: "Enter of the same owner adds a hold, and the key lives as long as its longest hold",
		store:  afterEnter(lastGovernsKey),
	},
	{
		bug:    "Left is the ttl of the request",
		breaks: "the key is held for another owner, and Left is the remaining life of the longest hold",
		store: afterEnter(func(_ *memory.Store, _ string, ttl time.Duration, res *backends.Result) {
			if !res.OK {
				res.Left = ttl
			}
		}),
	},
	{
		bug:    "Left is set although the harness has NoLeft",
		breaks: "the key is held for another owner, and Left is the remaining life of the longest hold",
		store:  func(m *memory.Store) backends.SharedStore { return m },
		noLeft: true,
	},
	{
		bug:    "a hold that is entered again is removed with the one that has ended",
		breaks: "a hold that has ended can be entered again beside another hold",
		store: func(m *memory.Store) backends.SharedStore {
			r := remember(m)
			return sharedDouble{
				Store: m,
				enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
					anew := slices.Contains(r.tokens[key], token) && !holds(m, key, token)
					res, err := r.Enter(ctx, key, token, ttl, a)
					if anew && res.Holds > 1 {
						_, _ = m.Leave(ctx, key, token)
					}
					return res, err
				},
			}
		},
	},
	{
		bug:    "Enter of a held key enters",
		breaks: "Enter of a held key changes nothing",
		store: func(m *memory.Store) backends.SharedStore {
			r := remember(m)
			return sharedDouble{
				Store: m,
				enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
					res, err := r.Enter(ctx, key, token, ttl, a)
					if !res.OK {
						_, _ = r.Enter(ctx, key, token, ttl, unlimited(r.as[key]))
					}
					return res, err
				},
			}
		},
	},
	{
		bug:    "an empty owner is an owner like any other",
		breaks: "an empty owner never enters a held key, not even one of an empty owner",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				a.Limit = 0
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "a hold without an owner does not count",
		breaks: "no owner enters a key of an empty owner",
		store: func(m *memory.Store) backends.SharedStore {
			r := remember(m)
			return sharedDouble{
				Store: m,
				enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
					if r.as[key].Limit == 1 {
						m.Delete(key)
					}
					return r.Enter(ctx, key, token, ttl, a)
				},
			}
		},
	},
	{
		bug:    "a second Enter adds a hold",
		breaks: "a second Enter of a hold is granted with ttl from then on, and counts once",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				for holds(m, key, token) {
					token += "'"
				}
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "a second Enter without an owner is held",
		breaks: "a second Enter of a hold is granted with ttl from then on, and counts once",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if a.Limit == 1 && holds(m, key, token) {
					return backends.Result{}, nil
				}
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "a second Enter does not set the ttl",
		breaks: "a second Enter of a hold is granted with ttl from then on, and counts once",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if holds(m, key, token) {
					ttl = time.Millisecond
				}
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "a second Enter shortens the hold",
		breaks: "a second Enter never shortens the hold",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				_, _ = m.Leave(ctx, key, token)
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "an inner hold gives the key its ttl",
		breaks: "an inner hold with a shorter ttl never shortens the outer hold",
		store:  afterEnter(lastGovernsKey),
	},
	{
		bug:    "holds end together",
		breaks: "a hold ends in its time while an inner hold lives on, and does not count any more",
		store:  func(m *memory.Store) backends.SharedStore { return renewsAll{remember(m)} },
	},
	{
		bug:    "Enter rounds a ttl down",
		breaks: "a hold never lives shorter than its ttl, not even by a fraction of a millisecond",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				return m.Enter(ctx, key, token, ttl.Truncate(time.Millisecond), a)
			}
		}),
	},
	{
		bug:    "holds live for twice their ttl",
		breaks: "a key is free when its last hold has ended, and not before",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				return m.Enter(ctx, key, token, 2*ttl, a)
			}
		}),
	},
	{
		bug:    "a key is free a little early",
		breaks: "a key is free when its last hold has ended, and not before",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if _, left, _ := m.Get(key); left < time.Millisecond {
					m.Delete(key)
				}
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "Enter cuts a ttl down to the limit",
		breaks: "Enter with a ttl outside the limits is a permanent error, and changes nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				return m.Enter(ctx, key, token, min(ttl, backends.DefaultMaxTTL), a)
			}
		}),
	},
	{
		bug:    "Enter enters before it checks the ttl",
		breaks: "Enter with a ttl outside the limits is a permanent error, and changes nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if err != nil {
					_, _ = m.Enter(ctx, key, token, 10*time.Second, a)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Enter with a bad ttl is not permanent",
		breaks: "Enter with a ttl outside the limits is a permanent error, and changes nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if err != nil {
					err = errors.New(err.Error())
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Enter looks at its ctx too late",
		breaks: "Enter with a ctx that is done returns the error of the ctx and changes nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(background, key, token, ttl, a)
				return res, errors.Join(err, ctx.Err())
			}
		}),
	},
}

// renewsAll is a store where every Enter renews all holds of the key.
type renewsAll struct{ *remembering }

func (s renewsAll) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	res, err := s.remembering.Enter(ctx, key, token, ttl, a)
	for _, t := range s.tokens[key] {
		_, _ = s.Renew(ctx, key, t, ttl)
	}
	return res, err
}

// lastGovernsKey makes the key expire with the hold that entered last.
func lastGovernsKey(m *memory.Store, key string, ttl time.Duration, res *backends.Result) {
	if res.OK {
		_, _ = m.Legacy().Expire(background, key, ttl)
	}
}

var sharedRenewDoubles = []broken[backends.SharedStore]{
	{
		bug:    "Renew does nothing",
		breaks: "Renew makes a hold live for ttl from now",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(_ context.Context, key, token string, _ time.Duration) (bool, error) {
				return holds(m, key, token), nil
			}
		}),
	},
	{
		bug:    "Renew shortens",
		breaks: "Renew never shortens a hold",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				ok, err := m.Renew(ctx, key, token, ttl)
				_, _ = m.Legacy().Expire(ctx, key, ttl)
				return ok, err
			}
		}),
	},
	{
		bug:    "Enter goes by the end that a hold had first",
		breaks: "a hold that was renewed or entered again keeps others out after the end that it had first",
		store: badEnter(func(m *memory.Store) enterFunc {
			var firsts sync.Map
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				first, found := firsts.Load(key)
				if e, _ := first.(ending); found && e.value != token && time.Now().After(e.at) {
					_, _ = m.Leave(background, key, e.value)
				}
				if _, _, held := m.Get(key); !held {
					firsts.Store(key, ending{token, time.Now().Add(ttl)})
				}
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "Renew rounds a ttl down",
		breaks: "a hold never lives shorter than the ttl of its Renew, not even by a fraction of a millisecond",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				return m.Renew(ctx, key, token, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "a renewal brings back a hold that has ended",
		breaks: "Renew of one hold neither prolongs another hold nor brings it back",
		store:  func(m *memory.Store) backends.SharedStore { return bringsBack{remember(m)} },
	},
	{
		bug:    "Renew enters",
		breaks: "Renew of an unknown hold returns false and changes nothing",
		store:  badRenew(renewsByEntering),
	},
	{
		bug:    "Renew returns false, but renews another hold",
		breaks: "Renew of an unknown hold returns false and changes nothing",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				ok, err := m.Renew(ctx, key, token, ttl)
				_, _ = m.Legacy().Expire(ctx, key, ttl)
				return ok, err
			}
		}),
	},
	{
		bug:    "Renew brings back a hold that has ended",
		breaks: "Renew of the last hold after its end returns false and does not bring it back",
		store:  badRenew(renewsByEntering),
	},
	{
		bug:    "Renew cuts a ttl down to the limit",
		breaks: "Renew with a ttl outside the limits is a permanent error, and changes nothing",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				return m.Renew(ctx, key, token, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "Renew looks at its ctx too late",
		breaks: "Renew with a ctx that is done returns the error of the ctx and changes nothing",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				ok, err := m.Renew(background, key, token, ttl)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
}

// bringsBack is a store where Renew of one hold brings back holds that have ended.
type bringsBack struct{ *remembering }

func (s bringsBack) Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
	ok, err := s.Store.Renew(ctx, key, token, ttl)
	for _, t := range s.tokens[key] {
		if ok {
			_, _ = s.Store.Enter(ctx, key, t, ttl, s.as[key])
		}
	}
	return ok, err
}

func renewsByEntering(m *memory.Store) renewFunc {
	return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
		res, err := m.Enter(ctx, key, token, ttl, of("ann"))
		return res.OK, err
	}
}

var sharedLeaveDoubles = []broken[backends.SharedStore]{
	{
		bug:    "Leave does nothing",
		breaks: "Leave of the last hold frees the key",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(_ context.Context, key, token string) (bool, error) { return holds(m, key, token), nil }
		}),
	},
	{
		bug:    "Leave frees the key",
		breaks: "Leave of one of two holds leaves the other hold and its life alone",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(_ context.Context, key, token string) (bool, error) {
				ok := holds(m, key, token)
				m.Delete(key)
				return ok, nil
			}
		}),
	},
	{
		bug:    "the key keeps the life of a hold that Leave has ended",
		breaks: "Leave of one of two holds leaves the other hold and its life alone",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				_, left, _ := m.Get(key)
				ok, err := m.Leave(ctx, key, token)
				_, _ = m.Legacy().Expire(ctx, key, left)
				return ok, err
			}
		}),
	},
	{
		bug:    "Leave returns true if the hold is not there afterwards",
		breaks: "Leave of a hold that has ended returns false",
		store:  badLeave(trueIfLeft),
	},
	{
		bug:    "Leave returns true if the hold is not there afterwards, even for a second Leave",
		breaks: "a second Leave returns false and changes nothing",
		store:  badLeave(trueIfLeft),
	},
	{
		bug:    "Leave of an unknown hold ends another hold",
		breaks: "a second Leave returns false and changes nothing",
		store: func(m *memory.Store) backends.SharedStore {
			r := remember(m)
			return sharedDouble{Store: m, enter: r.Enter, leave: func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				if held := r.tokens[key]; !ok && len(held) > 0 {
					_, _ = m.Leave(ctx, key, held[len(held)-1])
				}
				return ok, err
			}}
		},
	},
	{
		bug:    "Leave returns false, but frees the key",
		breaks: "a late Leave leaves the next owner alone",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				m.Delete(key)
				return ok, err
			}
		}),
	},
	{
		bug:    "Leave looks at its ctx too late",
		breaks: "Leave with a ctx that is done returns the error of the ctx and changes nothing",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(background, key, token)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
}

func trueIfLeft(m *memory.Store) leaveFunc {
	return func(ctx context.Context, key, token string) (bool, error) {
		_, err := m.Leave(ctx, key, token)
		return !holds(m, key, token), err
	}
}

var sharedForeignDoubles = []broken[backends.SharedStore]{
	{
		bug:    "a value of another type is held",
		breaks: "a value of another type is a permanent error that matches ErrWrongType, and stays",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Leave deletes a value of another type",
		breaks: "a value of another type is a permanent error that matches ErrWrongType, and stays",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				if err != nil {
					m.Delete(key)
				}
				return ok, err
			}
		}),
	},
	{
		bug:    "a foreign value is not reported",
		breaks: "a value of the type of holds without expiry is Foreign, without Left, and stays",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Foreign = false
		}),
	},
	{
		bug:    "a foreign value is taken over",
		breaks: "a value of the type of holds without expiry is Foreign, without Left, and stays",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if res.Foreign {
					m.Delete(key)
					return m.Enter(ctx, key, token, ttl, a)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Leave deletes a foreign value",
		breaks: "a value of the type of holds without expiry is Foreign, without Left, and stays",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok, err := m.Leave(ctx, key, token)
				m.Delete(key)
				return ok, err
			}
		}),
	},
}

var sharedManyDoubles = []broken[backends.SharedStore]{
	{
		bug:    "a prefix of the store may begin a token",
		breaks: "a token may be any text, and no text has a special meaning",
		store:  mistaking(nil, nil, func(token string) string { return strings.TrimPrefix(token, "hold:") }),
	},
	{
		bug:    "a token is compared without its spaces",
		breaks: "a token may be any text, and no text has a special meaning",
		store:  mistaking(nil, nil, strings.TrimSpace),
	},
	{
		bug:    "an owner is the same in either case",
		breaks: "an owner may be any text, and owners match only if all their bytes are equal",
		store:  mistaking(nil, strings.ToLower, nil),
	},
	{
		bug:    "an owner is compared without its spaces",
		breaks: "an owner may be any text, and owners match only if all their bytes are equal",
		store:  mistaking(nil, strings.TrimSpace, nil),
	},
	{
		bug:    "a key is trimmed",
		breaks: "keys that differ in any byte are different keys",
		store:  mistaking(strings.TrimSpace, nil, nil),
	},
	{
		bug:    "Enter looks, and acts later",
		breaks: "of owners that enter at the same time exactly one is granted",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				_, _, held := m.Get(key)
				time.Sleep(leap)
				if !held {
					m.Delete(key)
				}
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "Enter counts the holds of a limit of several, and adds its own later",
		breaks: "of callers that enter at the same time as many are granted as the limit says, each with a slot of its own",
		store: looking(func(m *memory.Store, key string, a *backends.Admission) func(*backends.Result) {
			if a.Slots {
				return nil
			}
			limit := *a
			a.Limit += callers
			return func(res *backends.Result) { res.Room = limit.Room(res.Holds) }
		}),
	},
	{
		bug:    "Enter looks for a slot, and takes it later",
		breaks: "of callers that enter at the same time as many are granted as the limit says, each with a slot of its own",
		store: looking(func(m *memory.Store, key string, a *backends.Admission) func(*backends.Result) {
			taken, slot := map[int]bool{}, 0
			state, _ := m.Inspect(background, key)
			for _, h := range state.Holds {
				taken[h.Slot] = true
			}
			for taken[slot] {
				slot++
			}
			slots := a.Slots
			return func(res *backends.Result) {
				if slots {
					res.Slot = slot
				}
			}
		}),
	},
	{
		bug:    "holds are counted after the call",
		breaks: "holds of one owner that enter at the same time all count",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				_, _ = m.Enter(ctx, key, token, ttl, a)
				time.Sleep(leap)
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "Leave looks, and acts later",
		breaks: "of concurrent Leave calls of one hold exactly one returns true",
		store: badLeave(func(m *memory.Store) leaveFunc {
			return func(ctx context.Context, key, token string) (bool, error) {
				ok := holds(m, key, token)
				time.Sleep(leap)
				_, err := m.Leave(ctx, key, token)
				return ok, err
			}
		}),
	},
	{
		bug:    "Renew looks for the hold, and then stores it",
		breaks: "Renew never brings back a hold that left during the call",
		store: badRenew(func(m *memory.Store) renewFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				ok, err := m.Renew(ctx, key, token, ttl)
				if ok {
					time.Sleep(leap)
					_, _ = m.Enter(background, key, token, ttl, of("ann"))
				}
				return ok, err
			}
		}),
	},
	{
		bug:    "Leave writes back the holds that it has read",
		breaks: "concurrent Enter and Leave calls of different holds do not affect each other",
		store:  func(m *memory.Store) backends.SharedStore { return rewrites{remember(m)} },
	},
}

// looking is a store whose Enter looks at a key with room, may change what it asks for, and acts later.
func looking(look func(m *memory.Store, key string, a *backends.Admission) func(*backends.Result)) func(*memory.Store) backends.SharedStore {
	return badEnter(func(m *memory.Store) enterFunc {
		return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
			state, err := m.Inspect(ctx, key)
			if err != nil || state.Foreign || a.Limit < 2 || a.Validate() != nil || state.Holding >= a.Limit ||
				state.Holding > 0 && state.Group != a.Group || holds(m, key, token) {
				return m.Enter(ctx, key, token, ttl, a)
			}
			act := look(m, key, &a)
			time.Sleep(leap)
			res, err := m.Enter(ctx, key, token, ttl, a)
			if act != nil && res.OK {
				act(&res)
			}
			return res, err
		}
	})
}

// rewrites is a store whose Leave writes back the holds that it has read before.
type rewrites struct{ *remembering }

func (s rewrites) Leave(ctx context.Context, key, token string) (bool, error) {
	s.mu.Lock()
	tokens, as := slices.Clone(s.tokens[key]), s.as[key]
	s.mu.Unlock()
	tokens = slices.DeleteFunc(tokens, func(t string) bool { return !holds(s.Store, key, t) })
	time.Sleep(leap)
	ok := holds(s.Store, key, token)
	s.Delete(key)
	for _, t := range tokens {
		if t != token {
			_, _ = s.Store.Enter(ctx, key, t, 10*time.Second, as)
		}
	}
	return ok, nil
}

// changing is a store whose Enter gets another Admission.
func changing(change func(a *backends.Admission)) func(*memory.Store) backends.SharedStore {
	return badEnter(func(m *memory.Store) enterFunc {
		return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
			change(&a)
			return m.Enter(ctx, key, token, ttl, a)
		}
	})
}

var admissionDoubles = []broken[backends.SharedStore]{
	{
		bug:    "one hold too many is admitted",
		breaks: "as many holds are admitted as the limit says; Holds counts them, and Room the rest",
		store: func(m *memory.Store) backends.SharedStore {
			return sharedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				limit := a.Limit
				a.Limit++
				res, err := m.Enter(ctx, key, token, ttl, a)
				res.Room = max(limit-res.Holds, 0)
				return res, err
			}}
		},
	},
	{
		bug:    "Room is that of a limit of 0",
		breaks: "without a limit any number of holds is admitted, and Room is -1",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Room = max(res.Room, 0)
		}),
	},
	{
		bug:    "the first limit stays",
		breaks: "a lower limit ends no hold, and admits nobody until fewer are left",
		store: func(m *memory.Store) backends.SharedStore {
			r := remember(m)
			return sharedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if first, found := r.as[key]; found {
					a.Limit = first.Limit
				}
				return r.Enter(ctx, key, token, ttl, a)
			}}
		},
	},
	{
		bug:    "Left is until the last hold has ended",
		breaks: "Left is until as many holds have ended as are too many for the limit",
		store: afterEnter(func(m *memory.Store, key string, _ time.Duration, res *backends.Result) {
			if !res.OK {
				_, res.Left, _ = m.Get(key)
			}
		}),
	},
	{
		bug:    "Enter answers a token as it did before",
		breaks: "a hold that has ended is one like any other when its room is taken",
		store: badEnter(func(m *memory.Store) enterFunc {
			var granted sync.Map
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				if last, found := granted.Load(key + token); found && err == nil && !res.OK {
					res = last.(backends.Result)
				}
				if res.OK {
					granted.Store(key+token, res)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a hold that is there does not fit if the key is full",
		breaks: "as many holds are admitted as the limit says; Holds counts them, and Room the rest",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if state, err := m.Inspect(ctx, key); err == nil && a.Limit > 1 && state.Holding >= a.Limit && holds(m, key, token) {
					return backends.Result{Holds: state.Holding}, nil
				}
				return m.Enter(ctx, key, token, ttl, a)
			}
		}),
	},
	{
		bug:    "an epoch lasts until a hold leaves",
		breaks: "an epoch is over when its last hold has ended by itself",
		store: func(m *memory.Store) backends.SharedStore {
			var epochs sync.Map
			return sharedDouble{
				Store: m,
				enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
					res, err := m.Enter(ctx, key, token, ttl, a)
					if res.OK && a.Numbered {
						if epoch, going := epochs.LoadOrStore(key, res.Fence); going {
							res.Fence = epoch.(uint64)
						}
					}
					return res, err
				},
				leave: func(ctx context.Context, key, token string) (bool, error) {
					ok, err := m.Leave(ctx, key, token)
					if _, _, held := m.Get(key); !held {
						epochs.Delete(key)
					}
					return ok, err
				},
			}
		},
	},
	{
		bug:    "groups are not compared",
		breaks: "holds of another group keep out, whatever the limit and whichever has no name",
		store:  changing(func(a *backends.Admission) { a.Group = "" }),
	},
	{
		bug:    "an empty group joins any other",
		breaks: "holds of another group keep out, whatever the limit and whichever has no name",
		store: func(m *memory.Store) backends.SharedStore {
			r := remember(m)
			return sharedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				if a.Group == "" {
					a.Group = r.as[key].Group
				}
				return r.Enter(ctx, key, token, ttl, a)
			}}
		},
	},
	{
		bug:    "Renew renews all holds",
		breaks: "a hold that has ended makes room, whatever the others renew",
		store: func(m *memory.Store) backends.SharedStore {
			r := remember(m)
			return sharedDouble{Store: m, enter: r.Enter, renew: func(ctx context.Context, key, token string, ttl time.Duration) (bool, error) {
				for _, t := range r.tokens[key] {
					_, _ = m.Renew(ctx, key, t, ttl)
				}
				return m.Renew(ctx, key, token, ttl)
			}}
		},
	},
	{
		bug:    "grants have no numbers",
		breaks: "a number is that of the epoch, and a new epoch has a greater one",
		store:  changing(func(a *backends.Admission) { a.Numbered = false }),
	},
	{
		bug:    "each grant has a number of its own",
		breaks: "a number is that of the epoch, and a new epoch has a greater one",
		store: func(m *memory.Store) backends.SharedStore {
			var last uint64
			return sharedDouble{Store: m, enter: func(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
				res, err := m.Enter(ctx, key, token, ttl, a)
				last++
				res.Fence = last
				return res, err
			}}
		},
	},
	{
		bug:    "all epochs have one number",
		breaks: "a number is that of the epoch, and a new epoch has a greater one",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Fence = 1
		}),
	},
}
