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
)

var setNXDoubles = []brokenStore{
	{
		bug:    "SetNX stores nothing",
		breaks: "a free key is granted, with its value and its ttl",
		store: badSetNX(func(*memory.Store) setNXFunc {
			return func(context.Context, string, string, time.Duration) (backends.Result, error) {
				return backends.Result{OK: true}, nil
			}
		}),
	},
	{
		bug:    "SetNX forgets the expiry",
		breaks: "a free key is granted, with its value and its ttl",
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
		bug:    "Left is the ttl asked for",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
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
		bug:    "Left is not told",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store:  badSetNX(withoutLeft),
	},
	{
		bug:    "Left is told by a store said not to",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store:  func(m *memory.Store) backends.Store { return m },
		noLeft: true,
	},
	{
		bug:    "every value is foreign",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				res.Foreign = !res.OK
				return res, err
			}
		}),
	},
	{
		bug:    "a refused SetNX is an error",
		breaks: "a key that is held is refused, and Left says how long that value still lives",
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
		bug:    "a refused SetNX gives the value its ttl",
		breaks: "a refused SetNX leaves the value and its expiry alone",
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
		bug:    "a refused SetNX overwrites",
		breaks: "a refused SetNX leaves the value and its expiry alone",
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
		bug:    "SetNX of the same value is refused",
		breaks: "a repeated SetNX of the same value is granted, and the value lives for ttl from then on",
		store:  badSetNX(onRepeat(func(_ *memory.Store, res *backends.Result, _, _ string, _, _ time.Duration) { res.OK = false })),
	},
	{
		bug:    "SetNX of the same value leaves its expiry",
		breaks: "a repeated SetNX of the same value is granted, and the value lives for ttl from then on",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, _, left time.Duration) {
			m.Set(key, value, left)
		})),
	},
	{
		bug:    "SetNX of the same value shortens its life",
		breaks: "a repeated SetNX of the same value never makes it live shorter, after an extension either",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl)
		})),
	},
	{
		bug:    "SetNX cuts a ttl down to the limit",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "SetNX refuses a ttl, after it has stored the value",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
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
		bug:    "SetNX does not say which limit",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
		store:  badSetNX(refusesTTLWith(permanent{errors.New("ttl too long")})),
	},
	{
		bug:    "SetNX leaves open whether a bad ttl was stored",
		breaks: "SetNX with a ttl over the limit is refused, the error names the limit, nothing is stored",
		store:  badSetNX(refusesTTLWith(fmt.Errorf("ttl over %v", backends.DefaultMaxTTL))),
	},
	{
		bug:    "SetNX refuses a ttl of the limit",
		breaks: "SetNX with a ttl of the limit is granted",
		store: func(*memory.Store) backends.Store {
			return memory.New(memory.WithMaxTTL(backends.DefaultMaxTTL - 1))
		},
	},
	{
		bug:    "SetNX with a ttl of 0 is for ever",
		breaks: "SetNX with a ttl under a millisecond is refused, nothing is stored",
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
		breaks: "a value never lives shorter than asked, not by a fraction of a millisecond",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "SetNX of the same value rounds a ttl down",
		breaks: "a value that was granted again never lives shorter than asked, not by a fraction of a millisecond",
		store: badSetNX(onRepeat(func(m *memory.Store, _ *backends.Result, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl.Truncate(time.Millisecond))
		})),
	},
	{
		bug:    "values live twice as long as asked",
		breaks: "a value is gone soon after its ttl",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(ctx, key, value, 2*ttl)
			}
		}),
	},
	{
		bug:    "an expired key is not free",
		breaks: "a key is free again when its value has expired, and not before",
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
		breaks: "a key is free again when its value has expired, and not before",
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

// onRepeat does something wrong to a SetNX of the value that is there already, with so much of its life left.
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

func refusesTTLWith(other error) func(*memory.Store) setNXFunc {
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
		breaks: "ExpireIf makes its own value live for ttl from now",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(_ context.Context, key, value string, _ time.Duration) (bool, error) {
				present, _, ok := m.Get(key)
				return ok && present == value, nil
			}
		}),
	},
	{
		bug:    "ExpireIf adds ttl to what is left",
		breaks: "ExpireIf makes its own value live for ttl from now",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, left time.Duration) {
			m.Set(key, value, left+ttl)
		})),
	},
	{
		bug:    "ExpireIf shortens",
		breaks: "ExpireIf never shortens a life",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, _ time.Duration) {
			m.Set(key, value, ttl)
		})),
	},
	{
		bug:    "ExpireIf rounds a ttl down",
		breaks: "an extended value never lives shorter than asked, not by a fraction of a millisecond",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, key, value, ttl.Truncate(time.Millisecond))
			}
		}),
	},
	{
		bug:    "ExpireIf ignores the value",
		breaks: "ExpireIf on another value says false and changes nothing",
		store:  badMatch(func(string, string) bool { return true }),
	},
	{
		bug:    "ExpireIf says false, but extends",
		breaks: "ExpireIf on another value says false and changes nothing",
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
		bug:    "ExpireIf creates",
		breaks: "ExpireIf on an absent key says false and creates nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				res, err := m.SetNX(ctx, key, value, ttl)
				return res.OK, err
			}
		}),
	},
	{
		bug:    "ExpireIf says false, but creates",
		breaks: "ExpireIf on an absent key says false and creates nothing",
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
		bug:    "ExpireIf brings back what has expired",
		breaks: "ExpireIf on an expired value says false and does not bring it back",
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
		breaks: "ExpireIf with a ttl over the limit is refused, the error names the limit, the expiry stays",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				return m.ExpireIf(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
			}
		}),
	},
	{
		bug:    "ExpireIf with a ttl of 0 deletes",
		breaks: "ExpireIf with a ttl under a millisecond is refused, the expiry stays",
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

// onExtension does something else in place of an extension that is granted.
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
		breaks: "DeleteIf removes its own value, and the key is free",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(_ context.Context, key, value string) (bool, error) {
				present, _, ok := m.Get(key)
				return ok && present == value, nil
			}
		}),
	},
	{
		bug:    "DeleteIf ignores the value",
		breaks: "DeleteIf on another value says false and changes nothing",
		store:  badDeleteIf(deleteAnything),
	},
	{
		bug:    "DeleteIf says false, but deletes",
		breaks: "DeleteIf on another value says false and changes nothing",
		store: badDeleteIf(func(m *memory.Store) deleteIfFunc {
			return func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.DeleteIf(ctx, key, value)
				m.Delete(key)
				return ok, err
			}
		}),
	},
	{
		bug:    "DeleteIf says true if nothing is left",
		breaks: "DeleteIf on an absent key says false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf says true if nothing is left, after an expiry",
		breaks: "DeleteIf on an expired value says false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf says true if nothing is left, after a deletion",
		breaks: "a second DeleteIf says false",
		store:  badDeleteIf(trueIfNothingIsLeft),
	},
	{
		bug:    "DeleteIf remembers who once held the key",
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
		breaks: "SetNX with a ctx that is already done returns its error and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(_ context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				return m.SetNX(background, key, value, ttl)
			}
		}),
	},
	{
		bug:    "SetNX looks at its ctx too late",
		breaks: "SetNX with a ctx that is already done returns its error and changes nothing",
		store: badSetNX(func(m *memory.Store) setNXFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
				res, err := m.SetNX(background, key, value, ttl)
				return res, errors.Join(err, ctx.Err())
			}
		}),
	},
	{
		bug:    "SetNX hides the error of its ctx",
		breaks: "SetNX with a ctx that is already done returns its error and changes nothing",
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
		breaks: "ExpireIf with a ctx that is already done returns its error and changes nothing",
		store: badExpireIf(func(m *memory.Store) expireIfFunc {
			return func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
				ok, err := m.ExpireIf(background, key, value, ttl)
				return ok, errors.Join(err, ctx.Err())
			}
		}),
	},
	{
		bug:    "DeleteIf looks at its ctx too late",
		breaks: "DeleteIf with a ctx that is already done returns its error and changes nothing",
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
		bug:    "SetNX looks and then leaps",
		breaks: "of many concurrent SetNX with different values exactly one is granted",
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
		bug:    "SetNX refuses while another SetNX is under way",
		breaks: "concurrent SetNX with the same value are all granted",
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
		bug:    "DeleteIf looks and then leaps",
		breaks: "of many concurrent DeleteIf with the same value exactly one says true",
		store:  badDeleteIf(looksAndThenDeletes),
	},
	{
		bug:    "DeleteIf looks and then deletes what came between",
		breaks: "a DeleteIf never removes the value of a SetNX that came between",
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
		time.Sleep(wait) // so that they leap one after the other
		m.Delete(key)
		return true, nil
	}
}

var foreignDoubles = []brokenStore{
	{
		bug:    "a foreign value is not told",
		breaks: "a value without expiry is refused as foreign, with no Left, and stays",
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
		breaks: "a value without expiry is refused as foreign, with no Left, and stays",
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
		bug:    "a foreign value is given an expiry",
		breaks: "a value without expiry is refused as foreign, with no Left, and stays",
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
		bug:    "a foreign value is anybody's",
		breaks: "ExpireIf and DeleteIf with another value leave a value without expiry alone",
		store:  badDeleteIf(deleteAnything),
	},
	{
		bug:    "ExpireIf gives an expiry to what has none",
		breaks: "ExpireIf with its own value without expiry says true and gives it none, since that would be shorter",
		store: badExpireIf(onExtension(func(m *memory.Store, key, value string, ttl, left time.Duration) {
			m.Set(key, value, max(ttl, left))
		})),
	},
	{
		bug:    "SetNX takes any value without expiry for foreign",
		breaks: "SetNX of the same value as one without expiry is granted and gives it the ttl",
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
		bug:    "DeleteIf deletes nothing that has no expiry",
		breaks: "DeleteIf removes its own value without expiry",
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
		bug:    "only what the store has written itself counts",
		breaks: "a value that other software stored with an expiry is refused like our own",
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
		bug:    "another type is only held",
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
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
		bug:    "another type leaves it open what was done",
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
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
		breaks: "a value of another type is an error that matches ErrWrongType, and stays",
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
		bug:    "a beginning of the value will do",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(strings.HasPrefix),
	},
	{
		bug:    "more than the value will do",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(func(present, value string) bool { return strings.HasPrefix(value, present) }),
	},
	{
		bug:    "an end of the value will do",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(strings.HasSuffix),
	},
	{
		bug:    "letters are the same in either case",
		breaks: "a value is ours only as a whole, not by its beginning, its end or its letters",
		store:  badMatch(strings.EqualFold),
	},
	{
		bug:    "a value is compared as a pattern",
		breaks: "a value may hold any text, and no text in it means anything",
		store: badMatch(func(present, value string) bool {
			matches, _ := path.Match(value, present)
			return matches
		}),
	},
	{
		bug:    "a value is compared as a number",
		breaks: "a value may hold any text, and no text in it means anything",
		store: badMatch(func(present, value string) bool {
			a, errA := strconv.ParseFloat(present, 64)
			b, errB := strconv.ParseFloat(value, 64)
			return errA == nil && errB == nil && a == b
		}),
	},
	{
		bug:    "a long value is compared by its beginning",
		breaks: "a value may hold any text, and no text in it means anything",
		store: badMatch(func(present, value string) bool {
			return len(present) > 1000 && len(value) > 1000 && present[:1000] == value[:1000]
		}),
	},
	{
		bug:    "a key is trimmed",
		breaks: "a key may hold any text: it is granted, refused, extended and deleted like any other",
		store:  badKeys(strings.TrimSpace),
	},
	{
		bug:    "a key is trimmed, so two are one",
		breaks: "no two keys are the same key",
		store:  badKeys(strings.TrimSpace),
	},
	{
		bug:    "a key is its hash tag",
		breaks: "no two keys are the same key",
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
		breaks: "no two keys are the same key",
		store:  badKeys(func(key string) string { return key[:min(len(key), 511)] }),
	},
	{
		bug:    "a key is in lower case",
		breaks: "no two keys are the same key",
		store:  badKeys(strings.ToLower),
	},
}
