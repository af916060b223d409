package backendtest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

var legacyDoubles = slices.Concat(legacySetDoubles, legacyExpireDoubles, legacyTxDoubles, legacyBitDoubles, legacyErrorDoubles,
	legacyManyDoubles)

// legacyDouble is a memory store with some commands replaced.
type legacyDouble struct {
	*memory.LegacyStore
	setNXForever func(ctx context.Context, key, value string) (bool, error)
	get          func(ctx context.Context, key string) (string, bool, error)
	getSet       func(ctx context.Context, key, value string) (string, bool, error)
	left         func(ctx context.Context, key string) (time.Duration, bool, error)
	expire       func(ctx context.Context, key string, ttl time.Duration) (bool, error)
	delete       func(ctx context.Context, key string) (bool, error)
	txExpireIf   func(ctx context.Context, key, value string, ttl time.Duration) (bool, error)
	txDeleteIf   func(ctx context.Context, key, value string) (bool, error)
	getBit       func(ctx context.Context, key string, offset uint32) (bool, error)
	setBit       func(ctx context.Context, key string, offset uint32, on bool) (bool, error)
}

func (d legacyDouble) SetNXForever(ctx context.Context, key, value string) (bool, error) {
	if d.setNXForever != nil {
		return d.setNXForever(ctx, key, value)
	}
	return d.LegacyStore.SetNXForever(ctx, key, value)
}

func (d legacyDouble) Get(ctx context.Context, key string) (string, bool, error) {
	if d.get != nil {
		return d.get(ctx, key)
	}
	return d.LegacyStore.Get(ctx, key)
}

func (d legacyDouble) GetSet(ctx context.Context, key, value string) (string, bool, error) {
	if d.getSet != nil {
		return d.getSet(ctx, key, value)
	}
	return d.LegacyStore.GetSet(ctx, key, value)
}

func (d legacyDouble) Left(ctx context.Context, key string) (time.Duration, bool, error) {
	if d.left != nil {
		return d.left(ctx, key)
	}
	return d.LegacyStore.Left(ctx, key)
}

func (d legacyDouble) Expire(ctx context.Context, key string, ttl time.Duration) (bool, error) {
	if d.expire != nil {
		return d.expire(ctx, key, ttl)
	}
	return d.LegacyStore.Expire(ctx, key, ttl)
}

func (d legacyDouble) Delete(ctx context.Context, key string) (bool, error) {
	if d.delete != nil {
		return d.delete(ctx, key)
	}
	return d.LegacyStore.Delete(ctx, key)
}

func (d legacyDouble) TxExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	if d.txExpireIf != nil {
		return d.txExpireIf(ctx, key, value, ttl)
	}
	return d.LegacyStore.TxExpireIf(ctx, key, value, ttl)
}

func (d legacyDouble) TxDeleteIf(ctx context.Context, key, value string) (bool, error) {
	if d.txDeleteIf != nil {
		return d.txDeleteIf(ctx, key, value)
	}
	return d.LegacyStore.TxDeleteIf(ctx, key, value)
}

func (d legacyDouble) GetBit(ctx context.Context, key string, offset uint32) (bool, error) {
	if d.getBit != nil {
		return d.getBit(ctx, key, offset)
	}
	return d.LegacyStore.GetBit(ctx, key, offset)
}

func (d legacyDouble) SetBit(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
	if d.setBit != nil {
		return d.setBit(ctx, key, offset, on)
	}
	return d.LegacyStore.SetBit(ctx, key, offset, on)
}

var legacySetDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "SetNXForever stores with an expiry",
		breaks: "SetNXForever stores in a free key, without expiry",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				res, err := m.SetNX(ctx, key, value, time.Hour)
				return res.OK, err
			}}
		},
	},
	{
		bug:    "SetNXForever overwrites",
		breaks: "SetNXForever of a key that is not free says false and changes nothing, not even with the same value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.Legacy().SetNXForever(ctx, key, value)
				m.Set(key, value, 0)
				return ok, err
			}}
		},
	},
	{
		bug:    "SetNXForever of the same value is granted",
		breaks: "SetNXForever of a key that is not free says false and changes nothing, not even with the same value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				present, _, found := m.Get(key)
				ok, err := m.Legacy().SetNXForever(ctx, key, value)
				return ok || found && present == value, err
			}}
		},
	},
	{
		bug:    "SetNXForever takes a value of another type for an error",
		breaks: "SetNXForever of a key that is not free says false and changes nothing, not even with the same value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				if _, _, err := m.Legacy().Get(ctx, key); err != nil {
					return false, err
				}
				return m.Legacy().SetNXForever(ctx, key, value)
			}}
		},
	},
	{
		bug:    "an expired key is not free",
		breaks: "SetNXForever stores in a key whose value has expired",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(context.Context, string, string) (bool, error) {
				return false, nil
			}}
		},
	},
	{
		bug:    "Get does not tell an empty value from none",
		breaks: "Get returns the value, or that there is none",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), get: func(ctx context.Context, key string) (string, bool, error) {
				value, _, err := m.Legacy().Get(ctx, key)
				return value, value != "", err
			}}
		},
	},
	{
		bug:    "Get removes the value",
		breaks: "Get returns the value, or that there is none",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), get: func(ctx context.Context, key string) (string, bool, error) {
				value, found, err := m.Legacy().Get(ctx, key)
				m.Delete(key)
				return value, found, err
			}}
		},
	},
	{
		bug:    "GetSet keeps the expiry",
		breaks: "GetSet stores without expiry whatever was there, and returns it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				_, left, _ := m.Get(key)
				old, found, err := m.Legacy().GetSet(ctx, key, value)
				m.Set(key, value, left)
				return old, found, err
			}}
		},
	},
	{
		bug:    "GetSet returns the new value",
		breaks: "GetSet stores without expiry whatever was there, and returns it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				_, found, err := m.Legacy().GetSet(ctx, key, value)
				return value, found, err
			}}
		},
	},
	{
		bug:    "GetSet stores only where something is",
		breaks: "GetSet stores without expiry whatever was there, and returns it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				if _, _, found := m.Get(key); !found {
					return "", false, nil
				}
				return m.Legacy().GetSet(ctx, key, value)
			}}
		},
	},
	{
		bug:    "Delete always finds something",
		breaks: "Delete removes whatever is there, and says whether there was something",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), delete: func(ctx context.Context, key string) (bool, error) {
				_, err := m.Legacy().Delete(ctx, key)
				return true, err
			}}
		},
	},
	{
		bug:    "Delete removes only texts",
		breaks: "Delete removes whatever is there, and says whether there was something",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), delete: func(ctx context.Context, key string) (bool, error) {
				if _, _, err := m.Legacy().Get(ctx, key); err != nil {
					return false, err
				}
				return m.Legacy().Delete(ctx, key)
			}}
		},
	},
}

var legacyExpireDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "Left is -1 where there is no expiry",
		breaks: "Left says how long a value still lives, 0 if it has no expiry, and whether there is one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, found, err := m.Legacy().Left(ctx, key)
				if found && left == 0 {
					left = -1
				}
				return left, found, err
			}}
		},
	},
	{
		bug:    "Left is in seconds",
		breaks: "Left says how long a value still lives, 0 if it has no expiry, and whether there is one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, found, err := m.Legacy().Left(ctx, key)
				return left.Round(time.Second), found, err
			}}
		},
	},
	{
		bug:    "a value without expiry is not there",
		breaks: "Left says how long a value still lives, 0 if it has no expiry, and whether there is one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, _, err := m.Legacy().Left(ctx, key)
				return left, left != 0, err
			}}
		},
	},
	{
		bug:    "Expire never shortens",
		breaks: "Expire makes any value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				_, left, _ := m.Get(key)
				return m.Legacy().Expire(ctx, key, max(ttl, left))
			}}
		},
	},
	{
		bug:    "Expire leaves a value without expiry alone",
		breaks: "Expire makes any value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				if _, left, found := m.Get(key); found && left == 0 {
					return true, nil
				}
				return m.Legacy().Expire(ctx, key, ttl)
			}}
		},
	},
	{
		bug:    "Expire rounds a ttl down",
		breaks: "Expire never makes a value live shorter than asked, not by a fraction of a millisecond",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, ttl.Truncate(time.Millisecond))
			}}
		},
	},
	{
		bug:    "Expire gives twice the ttl",
		breaks: "a value is gone soon after the ttl that Expire gave it",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, 2*ttl)
			}}
		},
	},
	{
		bug:    "Expire creates",
		breaks: "Expire of a free key says false and creates nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				found, err := m.Legacy().Expire(ctx, key, ttl)
				if !found {
					m.Set(key, "", ttl)
				}
				return found, err
			}}
		},
	},
	{
		bug:    "Expire always finds something",
		breaks: "Expire of a free key says false and creates nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				_, err := m.Legacy().Expire(ctx, key, ttl)
				return true, err
			}}
		},
	},
	{
		bug:    "MaxTTL is another than the limit",
		breaks: "MaxTTL is the limit of a ttl",
		store: func(*memory.Store) backends.LegacyStore {
			return memory.New(memory.WithMaxTTL(backends.DefaultMaxTTL + 1)).Legacy()
		},
	},
	{
		bug:    "Expire cuts a ttl down to the limit",
		breaks: "Expire with a ttl out of the limits is refused, and the expiry stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, min(ttl, backends.DefaultMaxTTL))
			}}
		},
	},
	{
		bug:    "Expire deletes if the ttl is not positive",
		breaks: "Expire with a ttl out of the limits is refused, and the expiry stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				if ttl <= 0 {
					m.Delete(key)
					return true, nil
				}
				return m.Legacy().Expire(ctx, key, ttl)
			}}
		},
	},
}

var legacyTxDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "TxExpireIf never shortens",
		breaks: "TxExpireIf makes its own value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					_, left, _ := m.Get(key)
					return m.Legacy().TxExpireIf(ctx, key, value, max(ttl, left))
				},
			}
		},
	},
	{
		bug:    "TxExpireIf leaves a value without expiry alone",
		breaks: "TxExpireIf makes its own value live for ttl from now, whether that is longer or shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.ExpireIf(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "TxExpireIf rounds a ttl down",
		breaks: "TxExpireIf never makes a value live shorter than asked, not by a fraction of a millisecond",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.Legacy().TxExpireIf(ctx, key, value, ttl.Truncate(time.Millisecond))
				},
			}
		},
	},
	{
		bug:    "TxExpireIf ignores the value",
		breaks: "TxExpireIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.Legacy().Expire(ctx, key, ttl)
				},
			}
		},
	},
	{
		bug:    "TxExpireIf finds a beginning of the value",
		breaks: "TxExpireIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					if present, _, _ := m.Get(key); strings.HasPrefix(present, value) {
						value = present
					}
					return m.Legacy().TxExpireIf(ctx, key, value, ttl)
				},
			}
		},
	},
	{
		bug:    "TxExpireIf takes none for an empty value",
		breaks: "TxExpireIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					ok, err := m.Legacy().TxExpireIf(ctx, key, value, ttl)
					_, _, found := m.Get(key)
					return ok || !found && value == "", err
				},
			}
		},
	},
	{
		bug:    "TxExpireIf cuts a ttl down to the limit",
		breaks: "TxExpireIf with a ttl out of the limits is refused, and the expiry stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
					return m.Legacy().TxExpireIf(ctx, key, value, min(ttl, backends.DefaultMaxTTL))
				},
			}
		},
	},
	{
		bug:    "TxDeleteIf does nothing",
		breaks: "TxDeleteIf removes its own value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				present, _, found := m.Get(key)
				return found && present == value, nil
			}}
		},
	},
	{
		bug:    "TxDeleteIf says true if nothing is left",
		breaks: "TxDeleteIf removes its own value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				_, err := m.Legacy().TxDeleteIf(ctx, key, value)
				_, _, found := m.Get(key)
				return !found, err
			}}
		},
	},
	{
		bug:    "TxDeleteIf ignores the value",
		breaks: "TxDeleteIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				return m.Legacy().Delete(ctx, key)
			}}
		},
	},
	{
		bug:    "TxDeleteIf says false, but deletes",
		breaks: "TxDeleteIf on another value, or none, says false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				ok, err := m.Legacy().TxDeleteIf(ctx, key, value)
				m.Delete(key)
				return ok, err
			}}
		},
	},
}

var legacyBitDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "GetBit creates",
		breaks: "GetBit of a free key is off, and creates nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getBit: func(ctx context.Context, key string, offset uint32) (bool, error) {
				_, _ = m.Legacy().SetNXForever(ctx, key, "")
				return m.Legacy().GetBit(ctx, key, offset)
			}}
		},
	},
	{
		bug:    "SetBit returns the new bit",
		breaks: "SetBit sets a bit and returns the old one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					_, err := m.Legacy().SetBit(ctx, key, offset, on)
					return on, err
				},
			}
		},
	},
	{
		bug:    "SetBit only ever sets",
		breaks: "SetBit sets a bit and returns the old one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					return m.Legacy().SetBit(ctx, key, offset, true)
				},
			}
		},
	},
	{
		bug:    "bits of a byte are one",
		breaks: "every bit is one of its own",
		store:  bitsAt(func(offset uint32) uint32 { return offset / 8 }),
	},
	{
		bug:    "bits that are 17 apart are one",
		breaks: "every bit is one of its own",
		store:  bitsAt(func(offset uint32) uint32 { return offset % 17 }),
	},
	{
		bug:    "bits lie the lowest first",
		breaks: "bit n is in byte n/8 of the value, the highest bit first",
		store:  bitsAt(func(offset uint32) uint32 { return offset ^ 7 }),
	},
	{
		bug:    "SetBit takes the expiry away",
		breaks: "SetBit leaves the expiry alone",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					was, err := m.Legacy().SetBit(ctx, key, offset, on)
					value, _, _ := m.Get(key)
					m.Set(key, value, 0)
					return was, err
				},
			}
		},
	},
}

// bitsAt is a store that has bits where they do not belong.
func bitsAt(mistake func(offset uint32) uint32) func(*memory.Store) backends.LegacyStore {
	return func(m *memory.Store) backends.LegacyStore {
		return legacyDouble{
			LegacyStore: m.Legacy(),
			getBit: func(ctx context.Context, key string, offset uint32) (bool, error) {
				return m.Legacy().GetBit(ctx, key, mistake(offset))
			},
			setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
				return m.Legacy().SetBit(ctx, key, mistake(offset), on)
			},
		}
	}
}

var legacyErrorDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "Get takes a value of another type for an empty one",
		breaks: "commands on a text find a value of another type an error that matches ErrWrongType, and it stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), get: func(ctx context.Context, key string) (string, bool, error) {
				value, found, err := m.Legacy().Get(ctx, key)
				if errors.Is(err, backends.ErrWrongType) {
					err = nil
				}
				return value, found, err
			}}
		},
	},
	{
		bug:    "GetSet overwrites a value of another type",
		breaks: "commands on a text find a value of another type an error that matches ErrWrongType, and it stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				old, found, err := m.Legacy().GetSet(ctx, key, value)
				m.Set(key, value, 0)
				return old, found, err
			}}
		},
	},
	{
		bug:    "SetBit leaves open whether a value of another type has changed",
		breaks: "commands on a text find a value of another type an error that matches ErrWrongType, and it stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					was, err := m.Legacy().SetBit(ctx, key, offset, on)
					if errors.Is(err, backends.ErrWrongType) {
						err = backends.ErrWrongType
					}
					return was, err
				},
			}
		},
	},
	{
		bug:    "Left ignores its ctx",
		breaks: "every command with a ctx that is already done returns its error and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(_ context.Context, key string) (time.Duration, bool, error) {
				return m.Legacy().Left(background, key)
			}}
		},
	},
	{
		bug:    "SetBit looks at its ctx too late",
		breaks: "every command with a ctx that is already done returns its error and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					was, err := m.Legacy().SetBit(background, key, offset, on)
					return was, errors.Join(err, ctx.Err())
				},
			}
		},
	},
}

var legacyManyDoubles = []broken[backends.LegacyStore]{
	{
		bug:    "TxDeleteIf compares numbers",
		breaks: "a value may hold any text, and no text in it means anything",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				present, _, _ := m.Get(key)
				a, errA := strconv.ParseFloat(present, 64)
				b, errB := strconv.ParseFloat(value, 64)
				if errA == nil && errB == nil && a == b {
					value = present
				}
				return m.Legacy().TxDeleteIf(ctx, key, value)
			}}
		},
	},
	{
		bug:    "values are without spaces at their ends",
		breaks: "a value may hold any text, and no text in it means anything",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				return m.Legacy().SetNXForever(ctx, key, strings.TrimSpace(value))
			}}
		},
	},
	{
		bug:    "SetNXForever takes keys that differ in spaces for one",
		breaks: "a key may hold any text, and no two keys are the same key",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				return m.Legacy().SetNXForever(ctx, strings.TrimSpace(key), value)
			}}
		},
	},
	{
		bug:    "SetNXForever looks and then leaps",
		breaks: "of many concurrent SetNXForever exactly one is granted",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				_, _, found := m.Get(key)
				time.Sleep(leap)
				if found {
					return false, nil
				}
				m.Set(key, value, 0)
				return true, nil
			}}
		},
	},
	{
		bug:    "SetBit looks and then leaps",
		breaks: "of many concurrent SetBit exactly one sees the bit change",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					was, _ := m.Legacy().GetBit(ctx, key, offset)
					time.Sleep(leap)
					_, err := m.Legacy().SetBit(ctx, key, offset, on)
					return was, err
				},
			}
		},
	},
	{
		bug:    "SetBit writes back the value that it has read",
		breaks: "concurrent SetBit of different bits all remain",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{
				LegacyStore: m.Legacy(),
				setBit: func(ctx context.Context, key string, offset uint32, on bool) (bool, error) {
					value, left, _ := m.Get(key)
					time.Sleep(leap)
					m.Set(key, value, left)
					return m.Legacy().SetBit(ctx, key, offset, on)
				},
			}
		},
	},
	{
		bug:    "Delete looks and then leaps",
		breaks: "of many concurrent Delete exactly one finds something",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), delete: func(ctx context.Context, key string) (bool, error) {
				_, _, found := m.Get(key)
				time.Sleep(leap)
				_, err := m.Legacy().Delete(ctx, key)
				return found, err
			}}
		},
	},
	{
		bug:    "TxDeleteIf looks and then leaps",
		breaks: "of many concurrent TxDeleteIf exactly one says true",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				present, _, found := m.Get(key)
				time.Sleep(leap)
				_, err := m.Legacy().TxDeleteIf(ctx, key, value)
				return found && present == value, err
			}}
		},
	},
	{
		bug:    "GetSet looks and then leaps",
		breaks: "of concurrent GetSet each returns what another has stored",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				old, _, found := m.Get(key)
				time.Sleep(leap)
				_, _, err := m.Legacy().GetSet(ctx, key, value)
				return old, found, err
			}}
		},
	},
	{
		bug:    "TxDeleteIf deletes what came between",
		breaks: "a TxDeleteIf never removes what came between",
		store: func(m *memory.Store) backends.LegacyStore {
			looks := looksAndThenDeletes(m)
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: looks, getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				time.Sleep(leap + leap/2) // between the first deletion and the second
				return m.Legacy().GetSet(ctx, key, value)
			}}
		},
	},
	{
		bug:    "TxExpireIf gives up if the key was touched",
		breaks: "TxExpireIf is done though others touch the key in between",
		store:  givesUp,
	},
}

// givesUp is a store whose TxExpireIf says false if there was an Expire in between.
func givesUp(m *memory.Store) backends.LegacyStore {
	var mu sync.Mutex
	touched := make(map[string]int)
	times := func(key string, more int) int {
		mu.Lock()
		defer mu.Unlock()
		touched[key] += more
		return touched[key]
	}
	return legacyDouble{
		LegacyStore: m.Legacy(),
		expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
			times(key, 1)
			return m.Legacy().Expire(ctx, key, ttl)
		},
		txExpireIf: func(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
			before := times(key, 0)
			time.Sleep(leap)
			if times(key, 0) != before {
				return false, nil
			}
			return m.Legacy().TxExpireIf(ctx, key, value, ttl)
		},
	}
}
