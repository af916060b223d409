package backendtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var nestedEnterDoubles = []broken[backends.NestedStore]{
	{
		bug:    "Enter stores nothing",
		breaks: "a free key is granted: one hold, for its ttl",
		store: badEnter(func(*memory.Store) enterFunc {
			return func(context.Context, string, string, string, time.Duration) (backends.Result, error) {
				return backends.Result{OK: true, Holds: 1}, nil
			}
		}),
	},
	{
		bug:    "holds are not counted",
		breaks: "a free key is granted: one hold, for its ttl",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Holds = 0
		}),
	},
	{
		bug:    "the holds before are not counted",
		breaks: "the same owner enters again: one hold more, and the key lives as long as the longest",
		store: afterEnter(func(_ *memory.Store, _ string, _ time.Duration, res *backends.Result) {
			res.Holds = 1
		}),
	},
	{
		bug:    "the key lives as long as the hold that entered last",
		breaks: "the same owner enters again: one hold more, and the key lives as long as the longest",
		store:  afterEnter(lastGovernsKey),
	},
	{
		bug:    "Left is the ttl asked for",
		breaks: "another owner is refused, and Left says how long the last of the holds still lives",
		store: afterEnter(func(_ *memory.Store, _ string, ttl time.Duration, res *backends.Result) {
			if !res.OK {
				res.Left = ttl
			}
		}),
	},
	{
		bug:    "Left is told by a store said not to",
		breaks: "another owner is refused, and Left says how long the last of the holds still lives",
		store:  func(m *memory.Store) backends.NestedStore { return m },
		noLeft: true,
	},
	{
		bug:    "a hold that is entered anew is cleared away with the one that has ended",
		breaks: "a hold that has ended can be entered anew beside another one, and is there",
		store: func(m *memory.Store) backends.NestedStore {
			r := remember(m)
			return nestedDouble{
				Store: m,
				enter: func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
					anew := slices.Contains(r.tokens[key], token) && !holds(m, key, token)
					res, err := r.Enter(ctx, key, owner, token, ttl)
					if anew && res.Holds > 1 {
						_, _ = m.Leave(ctx, key, token)
					}
					return res, err
				},
			}
		},
	},
	{
		bug:    "a refused Enter enters",
		breaks: "a refused Enter changes nothing",
		store: func(m *memory.Store) backends.NestedStore {
			r := remember(m)
			return nestedDouble{
				Store: m,
				enter: func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
					res, err := r.Enter(ctx, key, owner, token, ttl)
					if !res.OK {
						_, _ = r.Enter(ctx, key, r.owner[key], token, ttl)
					}
					return res, err
				},
			}
		},
	},
	{
		bug:    "nobody is an owner like any other",
		breaks: "an empty owner never enters beside a hold, not even of an empty owner",
		store:  mistaking(nil, func(owner string) string { return "owner " + owner }, nil),
	},
	{
		bug:    "a hold of nobody is not in the way",
		breaks: "nobody enters beside an empty owner",
		store: func(m *memory.Store) backends.NestedStore {
			r := remember(m)
			return nestedDouble{
				Store: m,
				enter: func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
					if r.owner[key] == "" {
						m.Delete(key)
					}
					return r.Enter(ctx, key, owner, token, ttl)
				},
			}
		},
	},
	{
		bug:    "a repeated Enter is one hold more",
		breaks: "a repeated Enter is granted, gives the hold its ttl anew, and is no second hold",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				for holds(m, key, token) {
					token += "'"
				}
				return m.Enter(ctx, key, owner, token, ttl)
			}
		}),
	},
	{
		bug:    "a repeated Enter of nobody is refused",
		breaks: "a repeated Enter is granted, gives the hold its ttl anew, and is no second hold",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				if owner == "" && holds(m, key, token) {
					return backends.Result{}, nil
				}
				return m.Enter(ctx, key, owner, token, ttl)
			}
		}),
	},
	{
		bug:    "a repeated Enter leaves the hold as it is",
		breaks: "a repeated Enter is granted, gives the hold its ttl anew, and is no second hold",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				if holds(m, key, token) {
					ttl = time.Millisecond
				}
				return m.Enter(ctx, key, owner, token, ttl)
			}
		}),
	},
	{
		bug:    "a repeated Enter shortens the hold",
		breaks: "a repeated Enter never shortens the hold",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				_, _ = m.Leave(ctx, key, token)
				return m.Enter(ctx, key, owner, token, ttl)
			}
		}),
	},
	{
		bug:    "an inner hold gives the key its ttl",
		breaks: "an inner hold with a shorter ttl never shortens the outer",
		store:  afterEnter(lastGovernsKey),
	},
	{
		bug:    "holds end together",
		breaks: "a hold ends in its time though an inner one goes on, and does not count then",
		store:  func(m *memory.Store) backends.NestedStore { return renewsAll{remember(m)} },
	},
	{
		bug:    "Enter rounds a ttl down",
		breaks: "a hold never lives shorter than asked, not by a fraction of a millisecond",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				return m.Enter(ctx, key, owner, token, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "holds live twice as long as asked",
		breaks: "the end of the last hold frees the key, and not before",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				return m.Enter(ctx, key, owner, token, 2*ttl)
			}
		}),
	},
	{
		bug:    "a key is free a little early",
		breaks: "the end of the last hold frees the key, and not before",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				if _, left, _ := m.Get(key); left < time.Millisecond {
					m.Delete(key)
				}
				return m.Enter(ctx, key, owner, token, ttl)
			}
		}),
	},
	{
		bug:    "Enter cuts a ttl down to the limit",
		breaks: "Enter with a ttl out of the limits is refused, and enters nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				return m.Enter(ctx, key, owner, token, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "Enter refuses a ttl, after it has entered",
		breaks: "Enter with a ttl out of the limits is refused, and enters nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				res, err := m.Enter(ctx, key, owner, token, ttl)
				if err != nil {
					_, _ = m.Enter(ctx, key, owner, token, 10*time.Second)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Enter leaves open whether it entered with a bad ttl",
		breaks: "Enter with a ttl out of the limits is refused, and enters nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				res, err := m.Enter(ctx, key, owner, token, ttl)
				if err != nil {
					err = errors.New(err.Error())
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Enter looks at its ctx too late",
		breaks: "Enter with a ctx that is already done returns its error and changes nothing",
		store: badEnter(func(m *memory.Store) enterFunc {
			return func(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
				res, err := m.Enter(background, key, owner, token, ttl)
				return res, errors.Join(err, ctx.Err())
			}
		}),
	},
}

// renewsAll is a store where every call to a lock renews all of its holds.
type renewsAll struct{ *remembering }

func (s renewsAll) Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (backends.Result, error) {
	res, err := s.remembering.Enter(ctx, key, owner, token, ttl)
	for _, t := range s.tokens[key] {
		_, _ = s.Renew(ctx, key, t, ttl)
	}
	return res, err
}

// lastGovernsKey lets the hold that entered last decide when the key expires.
func lastGovernsKey(m *memory.Store, key string, ttl time.Duration, res *backends.Result) {
	if res.OK {
		_, _ = m.Legacy().Expire(background, key, ttl)
	}
}
