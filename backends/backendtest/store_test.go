package backendtest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/relied"
)

var setNXDoubles = []brokenStore{
	{
		bug:    "SetNX stores nothing",
		breaks: "SetNX of a free key is granted, and stores the value for ttl",
		store: badSetNX(func(*memory.Store) setNXFunc {
			return func(context.Context, string, string, time.Duration) (backends.Result, error) {
				return backends.Result{OK: true}, nil
			}
		}),
	},
	{
		bug:    "SetNX forgets the expiry",
		breaks: "SetNX of a free key is granted, and stores the value for ttl",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.OK {
					m.Set(key, value, 0)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Left is the ttl of the request",
		breaks: "SetNX of a held key is not granted, and Left is the remaining life of its value",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if !res.OK {
					res.Left = ttl
				}
				return res, err
			}
		}),
	},
	{
		bug:    "Left is 0",
		breaks: "SetNX of a held key is not granted, and Left is the remaining life of its value",
		store:  badSetNX(withoutLeft),
	},
	{
		bug:    "Left is set although the harness has NoLeft",
		breaks: "SetNX of a held key is not granted, and Left is the remaining life of its value",
		store:  func(m *memory.Store) backends.Store { return m },
		noLeft: true,
	},
	{
		bug:    "every value is foreign",
		breaks: "SetNX of a held key is not granted, and Left is the remaining life of its value",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				res.Foreign = !res.OK
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX of a held key is an error",
		breaks: "SetNX of a held key is not granted, and Left is the remaining life of its value",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if err == nil && !res.OK {
					err = errors.New("held")
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX of a held key gives the value its ttl",
		breaks: "SetNX of a held key leaves the value and its expiry alone",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if present, _, ok := m.Get(key); ok && !res.OK {
					m.Set(key, present, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX of a held key overwrites",
		breaks: "SetNX of a held key leaves the value and its expiry alone",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if _, left, ok := m.Get(key); ok && !res.OK {
					m.Set(key, value, left)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX of the same value is not granted",
		breaks: "a second SetNX of the same value is granted, and the value lives for ttl from then on",
		store:  badSetNX(onRepeat(func(_ *memory.Store, res *backends.Result, _, _ string, _, _ time.Duration) { res.OK = false })),
	},
	{
		bug:    "SetNX of the same value does not set the ttl",
		breaks: "a second SetNX of the same value is granted, and the value lives for ttl from then on",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, _, left time.Duration) {
			m.Set(key, value, left)
		})),
	},
	{
		bug:    "SetNX answers a value as it did before",
		breaks: "a value that has ended is one like any other while another has the key",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			var granted sync.Map
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if _, found := granted.Load(key + value); found && err == nil {
					res = backends.Result{OK: true}
				}
				if res.OK {
					granted.Store(key+value, true)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX of the same value shortens its life",
		breaks: "a second SetNX of the same value never shortens its life, not even after an ExpireIf",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl)
		})),
	},
	{
		bug:    "SetNX cuts a ttl down to the limit",
		breaks: "SetNX with a ttl over the limit is a permanent error that names the limit, and stores nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "SetNX stores the value before it checks the ttl",
		breaks: "SetNX with a ttl over the limit is a permanent error that names the limit, and stores nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if err != nil {
					m.Set(key, value, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "SetNX does not name the limit",
		breaks: "SetNX with a ttl over the limit is a permanent error that names the limit, and stores nothing",
		store:  badSetNX(failsTTLWith(permanent{errors.New("ttl too long")})),
	},
	{
		bug:    "SetNX with a bad ttl is not permanent",
		breaks: "SetNX with a ttl over the limit is a permanent error that names the limit, and stores nothing",
		store:  badSetNX(failsTTLWith(fmt.Errorf("ttl over %v", backends.DefaultMaxTTL))),
	},
	{
		bug:    "SetNX fails for a ttl of the limit",
		breaks: "SetNX with a ttl of the limit is granted",
		store: func(*memory.Store) backends.Store {
			return memory.New(memory.WithMaxTTL(backends.DefaultMaxTTL - 1))
		},
	},
	{
		bug:    "SetNX compares the whole ttl with the limit",
		breaks: "SetNX and ExpireIf take a ttl over the limit if its caller relies on the limit or less",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(relied.With(ctx, ttl), key, value, ttl)
			}
		}),
	},
	{
		bug:    "a ttl of which nobody relies on the rest ends with the limit",
		breaks: "SetNX and ExpireIf take a ttl over the limit if its caller relies on the limit or less",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, backends.Relied(ctx, ttl))
			}
		}),
	},
	{
		bug:    "SetNX with a ttl of 0 stores without expiry",
		breaks: "SetNX with a ttl under a millisecond is a permanent error, and stores nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if ttl == 0 {
					m.Set(key, value, 0)
					return backends.Result{OK: true}, nil
				}
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "SetNX rounds a ttl down",
		breaks: "a value never lives shorter than its ttl, not even by a fraction of a millisecond",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "SetNX of the same value rounds a ttl down",
		breaks: "a value that was granted twice never lives shorter than its ttl, not even by a fraction of a millisecond",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl.Truncate(time.Millisecond))
		})),
	},
	{
		bug:    "values live for twice their ttl",
		breaks: "a value is gone soon after its ttl",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, 2*ttl)
			}
		}),
	},
	{
		bug:    "an expired key is not free",
		breaks: "a key is free when its value has expired, and not before",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			used := make(map[string]bool)
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if used[key] {
					return backends.Result{}, nil
				}
				used[key] = true
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "a key is free a little early",
		breaks: "a key is free when its value has expired, and not before",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if _, left, _ := m.Get(key); left < time.Millisecond {
					m.Delete(key)
				}
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
}

// onRepeat calls wrong after a SetNX of a value that was there already. left was its remaining
// life.
func onRepeat(wrong func(m *memory.Store, res *backends.Result, key, value string, ttl, left time.Duration)) func(*memory.Store) setNXFunc {
	return func(m *memory.Store) setNXFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			present, left, ok := m.Get(key)
			res, err := m.SetNX(ctx, key, value, ttl)
			if ok && present == value && res.OK {
				wrong(m, &res, key, value, ttl, left)
			}
			return res, err
		}
	}
}

func failsTTLWith(other error) func(*memory.Store) setNXFunc {
	return func(m *memory.Store) setNXFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			res, err := m.SetNX(ctx, key, value, ttl)
			if err != nil {
				err = other
			}
			return res, err
		}
	}
}

var expireIfDoubles = []brokenStore{
	{
		bug:    "ExpireIf does nothing",
		breaks: "ExpireIf makes a value that matches live for ttl from now",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(_ context.Context, key, value string, _ time.Duration) (bool, error) {
				present, _, ok := m.Get(key)
				return ok && present == value, nil
			}
		}),
	},
	{
		bug:    "ExpireIf adds ttl to the remaining life",
		breaks: "ExpireIf makes a value that matches live for ttl from now",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, left time.Duration) {
			m.Set(key, value, left+ttl)
		})),
	},
	{
		bug:    "ExpireIf shortens",
		breaks: "ExpireIf never shortens the life of a value",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl)
		})),
	},
	{
		bug:    "ExpireIf rounds a ttl down",
		breaks: "a value never lives shorter than the ttl of its ExpireIf, not even by a fraction of a millisecond",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, key, value, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "ExpireIf ignores the value",
		breaks: "ExpireIf of another value returns false and changes nothing",
		store:  badMatch(func(string, string) bool { return true }),
	},
	{
		bug:    "ExpireIf returns false, but extends",
		breaks: "ExpireIf of another value returns false and changes nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				if present, _, ok := m.Get(key); ok && present != value {
					m.Set(key, present, ttl)
				}
				return m.ExpireIf(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "SetNX goes by the end that a value had first",
		breaks: "a value that was extended or granted again keeps others out after the end that it had first",
		store: func(m *memory.Store) backends.Store {
			var firsts sync.Map
			return double{Store: m, setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				first, found := firsts.Load(key)
				if e, _ := first.(ending); found && e.value != value && time.Now().After(e.at) {
					_, _ = m.DeleteIf(background, key, e.value)
				}
				if _, _, held := m.Get(key); !held {
					firsts.Store(key, ending{value, time.Now().Add(ttl)})
				}
				return m.SetNX(ctx, key, value, ttl)
			}}
		},
	},
	{
		bug:    "ExpireIf creates",
		breaks: "ExpireIf of an absent key returns false and creates nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				return res.OK, err
			}
		}),
	},
	{
		bug:    "ExpireIf returns false, but creates",
		breaks: "ExpireIf of an absent key returns false and creates nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				ok, err := m.ExpireIf(ctx, key, value, ttl)
				if !ok && err == nil {
					_, err = m.SetNX(ctx, key, value, ttl)
				}
				return ok, err
			}
		}),
	},
	{
		bug:    "ExpireIf brings back an expired value",
		breaks: "ExpireIf of an expired value returns false and does not bring it back",
		store: func(m *memory.Store) backends.Store {
			last := make(map[string]string)
			return double{
				Store: m,
				setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					last[key] = value
					return m.SetNX(ctx, key, value, ttl)
				},
				expireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					if last[key] == value {
						_, _ = m.SetNX(ctx, key, value, ttl)
					}
					return m.ExpireIf(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "ExpireIf cuts a ttl down to the limit",
		breaks: "ExpireIf with a ttl over the limit is a permanent error that names the limit, and the expiry stays",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "ExpireIf with a ttl of 0 deletes",
		breaks: "ExpireIf with a ttl under a millisecond is a permanent error, and the expiry stays",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				if ttl <= 0 {
					return m.DeleteIf(ctx, key, value)
				}
				return m.ExpireIf(ctx, key, value, ttl)
			}
		}),
	},
}

// ending is when a value ended, or would have.
type ending struct {
	value string
	at    time.Time
}

// onExtension calls wrong instead of an ExpireIf that finds the value.
func onExtension(wrong func(m *memory.Store, key, value string, ttl, left time.Duration)) func(*memory.Store) expireIfFunc {
	return func(m *memory.Store) expireIfFunc {
		return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			_, left, _ := m.Get(key)
			ok, err := m.ExpireIf(ctx, key, value, ttl)
			if ok {
				wrong(m, key, value, ttl, left)
			}
			return ok, err
		}
	}
}

var deleteIfDoubles = []brokenStore{
	{
		bug:    "DeleteIf does nothing",
		breaks: "DeleteIf removes a value that matches, and the key is free",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(_ context.Context, key, value string) (bool, error) {
				present, _, ok := m.Get(key)
				return ok && present == value, nil
			}
		}),
	},
	{
		bug:    "DeleteIf ignores the value",
		breaks: "DeleteIf of another value returns false and changes nothing",
		store:  badDeleteIf(deleteAnything),
	},
	{
		bug:    "DeleteIf ignores the value once it was extended",
		breaks: "DeleteIf of another value returns false and changes nothing",
		store: func(m *memory.Store) backends.Store {
			var extended sync.Map
			return double{
				Store: m,
				expireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					ok, err := m.ExpireIf(ctx, key, value, ttl)
					if ok {
						extended.Store(key, value)
					}
					return ok, err
				},
				deleteIf: func(ctx context.Context, key, value string) (bool, error) {
					if present, _, _ := m.Get(key); present != value {
						if last, _ := extended.Load(key); last == present && present != "" {
							value = present
						}
					}
					return m.DeleteIf(ctx, key, value)
				},
			}
		},
	},
	{
		bug:    "DeleteIf returns false, but deletes",
		breaks: "DeleteIf of another value returns false and changes nothing",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.DeleteIf(ctx, key, value)
				m.Delete(key)
				return ok, err
			}
		}),
	},
	{
		bug:    "DeleteIf returns true if nothing is left",
		breaks: "DeleteIf of an absent key returns false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf returns true if nothing is left after an expiry",
		breaks: "DeleteIf of an expired value returns false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf returns true if nothing is left after a deletion",
		breaks: "a second DeleteIf returns false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf remembers earlier holders of the key",
		breaks: "a late DeleteIf leaves the next holder's value alone",
		store: func(m *memory.Store) backends.Store {
			held := make(map[string]bool)
			return double{
				Store: m,
				setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					res, err := m.SetNX(ctx, key, value, ttl)
					held[key+value] = held[key+value] || res.OK
					return res, err
				},
				deleteIf: func(_ context.Context, key, value string) (bool, error) {
					if held[key+value] {
						m.Delete(key)
					}
					return held[key+value], nil
				},
			}
		},
	},
}

func trueIfNothingIsLeft(m *memory.Store) deleteIfFunc {
	return func(ctx context.Context, key, value string) (bool, error) {
		_, err := m.DeleteIf(ctx, key, value)
		_, _, ok := m.Get(key)
		return !ok, err
	}
}

var contextDoubles = []brokenStore{
	{
		bug:    "SetNX ignores its ctx",
		breaks: "SetNX with a ctx that is done returns the error of the ctx and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(_ context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(background, key, value, ttl)
			}
		}),
	},
	{
		bug:    "SetNX looks at its ctx too late",
		breaks: "SetNX with a ctx that is done returns the error of the ctx and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(background, key, value, ttl)
				return res, errors.Join(err, ctx.Err())
			}
		}),
	},
	{
		bug:    "SetNX hides the error of its ctx",
		breaks: "SetNX with a ctx that is done returns the error of the ctx and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if ctx.Err() != nil {
					err = errors.New("timeout")
				}
				return res, err
			}
		}),
	},
	{
		bug:    "ExpireIf looks at its ctx too late",
		breaks: "ExpireIf with a ctx that is done returns the error of the ctx and changes nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				ok, err := m.ExpireIf(background, key, value, ttl)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
	{
		bug:    "DeleteIf looks at its ctx too late",
		breaks: "DeleteIf with a ctx that is done returns the error of the ctx and changes nothing",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.DeleteIf(background, key, value)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
}

var concurrencyDoubles = []brokenStore{
	{
		bug:    "SetNX looks, and acts later",
		breaks: "of concurrent SetNX calls with different values exactly one is granted",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if _, _, held := m.Get(key); held {
					return m.SetNX(ctx, key, value, ttl)
				}
				time.Sleep(time.Millisecond)
				m.Set(key, value, ttl)
				return backends.Result{OK: true}, nil
			}
		}),
	},
	{
		bug:    "SetNX fails while another SetNX is under way",
		breaks: "concurrent SetNX calls with the same value are all granted",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			var mu sync.Mutex
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if !mu.TryLock() {
					return backends.Result{}, nil
				}
				defer mu.Unlock()
				time.Sleep(time.Millisecond)
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "DeleteIf looks, and acts later",
		breaks: "of concurrent DeleteIf calls with the same value exactly one returns true",
		store:  badDeleteIf(looksAndThenDeletes),
	},
	{
		bug:    "ExpireIf looks, and then stores",
		breaks: "ExpireIf and a second SetNX never bring back a value that was removed during the call, nor overwrite the next",
		store: func(m *memory.Store) backends.Store {
			d := overtaken(m)
			d.expireIf = func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				present, left, _ := m.Get(key)
				ok, err := m.ExpireIf(ctx, key, value, ttl)
				if ok && left > 0 && present == value {
					time.Sleep(leap)
					m.Set(key, value, max(left, ttl))
				}
				return ok, err
			}
			return d
		},
	},
	{
		bug:    "a second SetNX looks, and then stores",
		breaks: "ExpireIf and a second SetNX never bring back a value that was removed during the call, nor overwrite the next",
		store: func(m *memory.Store) backends.Store {
			d := overtaken(m)
			late := d.setNX
			d.setNX = func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				present, left, _ := m.Get(key)
				if left == 0 || present != value {
					return late(ctx, key, value, ttl)
				}
				res, err := m.SetNX(ctx, key, value, ttl)
				time.Sleep(leap)
				m.Set(key, value, max(left, ttl))
				return res, err
			}
			return d
		},
	},
	{
		bug:    "DeleteIf looks, and then deletes any value",
		breaks: "DeleteIf never removes another value that was stored during the call",
		store: func(m *memory.Store) backends.Store {
			return double{
				Store: m,
				setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					if value != "old" {
						time.Sleep(leap + leap/2) // between the first deletion and the second
					}
					return m.SetNX(ctx, key, value, ttl)
				},
				deleteIf: looksAndThenDeletes(m),
			}
		},
	},
}

const leap = time.Millisecond

func looksAndThenDeletes(m *memory.Store) deleteIfFunc {
	slower := time.Duration(0)
	var mu sync.Mutex
	return func(_ context.Context, key, value string) (bool, error) {
		present, _, ok := m.Get(key)
		if !ok || present != value {
			return false, nil
		}
		mu.Lock()
		slower += leap
		wait := slower
		mu.Unlock()
		time.Sleep(wait) // then they act one after the other
		m.Delete(key)
		return true, nil
	}
}

var foreignDoubles = []brokenStore{
	{
		bug:    "a foreign value is not reported",
		breaks: "a value without expiry is Foreign, without Left, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				res.Foreign = false
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value has a Left of -1",
		breaks: "a value without expiry is Foreign, without Left, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.Foreign {
					res.Left = -1
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value gets an expiry",
		breaks: "a value without expiry is Foreign, without Left, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if res.Foreign {
					present, _, _ := m.Get(key)
					m.Set(key, present, ttl)
				}
				return res, err
			}
		}),
	},
	{
		bug:    "a foreign value matches any value",
		breaks: "ExpireIf and DeleteIf of another value leave a value without expiry alone",
		store:  badDeleteIf(deleteAnything),
	},
	{
		bug:    "ExpireIf sets an expiry where there was none",
		breaks: "ExpireIf of a value without expiry returns true and sets no expiry, which would shorten its life",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, left time.Duration) {
			m.Set(key, value, max(ttl, left))
		})),
	},
	{
		bug:    "SetNX takes its own value without expiry for a foreign one",
		breaks: "SetNX of the same value without expiry is granted and sets the ttl",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				if _, left, ok := m.Get(key); ok && left == 0 {
					return backends.Result{Foreign: true}, nil
				}
				return m.SetNX(ctx, key, value, ttl)
			}
		}),
	},
	{
		bug:    "DeleteIf does not delete a value without expiry",
		breaks: "DeleteIf removes a value without expiry that matches",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				if _, left, ok := m.Get(key); ok && left == 0 {
					return false, nil
				}
				return m.DeleteIf(ctx, key, value)
			}
		}),
	},
	{
		bug:    "only values that the store has written count",
		breaks: "a value that other software stored with an expiry counts like our own",
		store: func(m *memory.Store) backends.Store {
			written := make(map[string]bool)
			return badSetNX(func(m *memory.Store) setNXFunc {
				return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
					if !written[key] {
						m.Delete(key)
					}
					written[key] = true
					return m.SetNX(ctx, key, value, ttl)
				}
			})(m)
		},
	},
	{
		bug:    "another type is held",
		breaks: "a value of another type is a permanent error that matches ErrWrongType, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return res, err
			}
		}),
	},
	{
		bug:    "the error of another type is not permanent",
		breaks: "a value of another type is a permanent error that matches ErrWrongType, and stays",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.DeleteIf(ctx, key, value)
				if err != nil {
					err = backends.ErrWrongType
				}
				return ok, err
			}
		}),
	},
	{
		bug:    "another type is overwritten",
		breaks: "a value of another type is a permanent error that matches ErrWrongType, and stays",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				if err != nil {
					m.Set(key, value, ttl)
				}
				return res, err
			}
		}),
	},
}

var byteDoubles = []brokenStore{
	{
		bug:    "the beginning of the value matches",
		breaks: "values match only if all their bytes are equal",
		store:  badMatch(strings.HasPrefix),
	},
	{
		bug:    "a value that is longer matches",
		breaks: "values match only if all their bytes are equal",
		store:  badMatch(func(present, value string) bool { return strings.HasPrefix(value, present) }),
	},
	{
		bug:    "the end of the value matches",
		breaks: "values match only if all their bytes are equal",
		store:  badMatch(strings.HasSuffix),
	},
	{
		bug:    "values match in either case of letters",
		breaks: "values match only if all their bytes are equal",
		store:  badMatch(strings.EqualFold),
	},
	{
		bug:    "a value is compared as a pattern",
		breaks: "a value may be any text, and no text has a special meaning",
		store: badMatch(func(present, value string) bool {
			matches, _ := path.Match(value, present)
			return matches
		}),
	},
	{
		bug:    "a value is compared as a number",
		breaks: "a value may be any text, and no text has a special meaning",
		store: badMatch(func(present, value string) bool {
			a, errA := strconv.ParseFloat(present, 64)
			b, errB := strconv.ParseFloat(value, 64)
			return errA == nil && errB == nil && a == b
		}),
	},
	{
		bug:    "a long value is compared by its beginning",
		breaks: "a value may be any text, and no text has a special meaning",
		store: badMatch(func(present, value string) bool {
			return len(present) > 1000 && len(value) > 1000 && present[:1000] == value[:1000]
		}),
	},
	{
		bug:    "a key is trimmed",
		breaks: "a key may be any text, and SetNX, ExpireIf and DeleteIf treat it like any other key",
		store:  badKeys(strings.TrimSpace),
	},
	{
		bug:    "a key is trimmed, so two are one",
		breaks: "keys that differ in any byte are different keys",
		store:  badKeys(strings.TrimSpace),
	},
	{
		bug:    "a key is its hash tag",
		breaks: "keys that differ in any byte are different keys",
		store: badKeys(func(key string) string {
			if _, rest, ok := strings.Cut(key, "{"); ok {
				if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
					return tag
				}
			}
			return key
		}),
	},
	{
		bug:    "a long key is cut",
		breaks: "keys that differ in any byte are different keys",
		store:  badKeys(func(key string) string { return key[:min(len(key), 511)] }),
	},
	{
		bug:    "a key is in lower case",
		breaks: "keys that differ in any byte are different keys",
		store:  badKeys(strings.ToLower),
	},
}

// overtaken is a store whose DeleteIf comes half a leap after its call, and whose SetNX of a value other than
// old a little later: both overtake what another call stores after a leap.
func overtaken(m *memory.Store) double {
	return double{
		Store: m,
		setNX: func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			if value != "old" {
				time.Sleep(leap * 3 / 4)
			}
			return m.SetNX(ctx, key, value, ttl)
		},
		deleteIf: func(ctx context.Context, key, value string) (bool, error) {
			time.Sleep(leap / 2)
			return m.DeleteIf(ctx, key, value)
		},
	}
}
