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
		breaks: "SetNXForever stores a value without expiry if the key is free",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				res, err := m.SetNX(ctx, key, value, time.Hour)
				return res.OK, err
			}}
		},
	},
	{
		bug:    "SetNXForever overwrites",
		breaks: "SetNXForever of a held key returns false and changes nothing, even with the same value",
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
		breaks: "SetNXForever of a held key returns false and changes nothing, even with the same value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				present, _, found := m.Get(key)
				ok, err := m.Legacy().SetNXForever(ctx, key, value)
				return ok || found && present == value, err
			}}
		},
	},
	{
		bug:    "SetNXForever fails for a value of another type",
		breaks: "SetNXForever of a held key returns false and changes nothing, even with the same value",
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
		breaks: "SetNXForever stores a value if the last one has expired",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(context.Context, string, string) (bool, error) {
				return false, nil
			}}
		},
	},
	{
		bug:    "Get does not tell an empty value from none",
		breaks: "Get returns the value, and whether there is one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), get: func(ctx context.Context, key string) (string, bool, error) {
				value, _, err := m.Legacy().Get(ctx, key)
				return value, value != "", err
			}}
		},
	},
	{
		bug:    "Get removes the value",
		breaks: "Get returns the value, and whether there is one",
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
		breaks: "GetSet stores a value without expiry whatever was there, and returns the old value",
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
		breaks: "GetSet stores a value without expiry whatever was there, and returns the old value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				_, found, err := m.Legacy().GetSet(ctx, key, value)
				return value, found, err
			}}
		},
	},
	{
		bug:    "GetSet does not store if the key is free",
		breaks: "GetSet stores a value without expiry whatever was there, and returns the old value",
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
		breaks: "Delete removes any value, and returns whether there was one",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), delete: func(ctx context.Context, key string) (bool, error) {
				_, err := m.Legacy().Delete(ctx, key)
				return true, err
			}}
		},
	},
	{
		bug:    "Delete removes only strings",
		breaks: "Delete removes any value, and returns whether there was one",
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
		bug:    "Left is -1 without expiry",
		breaks: "Left returns the remaining life of a value, 0 without expiry, and whether there is a value",
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
		breaks: "Left returns the remaining life of a value, 0 without expiry, and whether there is a value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, found, err := m.Legacy().Left(ctx, key)
				return left.Round(time.Second), found, err
			}}
		},
	},
	{
		bug:    "a value without expiry does not count",
		breaks: "Left returns the remaining life of a value, 0 without expiry, and whether there is a value",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(ctx context.Context, key string) (time.Duration, bool, error) {
				left, _, err := m.Legacy().Left(ctx, key)
				return left, left != 0, err
			}}
		},
	},
	{
		bug:    "Expire never shortens",
		breaks: "Expire makes any value live for ttl from now, even if that is shorter",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				_, left, _ := m.Get(key)
				return m.Legacy().Expire(ctx, key, max(ttl, left))
			}}
		},
	},
	{
		bug:    "Expire leaves a value without expiry alone",
		breaks: "Expire makes any value live for ttl from now, even if that is shorter",
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
		breaks: "a value never lives shorter than the ttl of its Expire, not even by a fraction of a millisecond",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, ttl.Truncate(time.Millisecond))
			}}
		},
	},
	{
		bug:    "Expire gives twice the ttl",
		breaks: "a value is gone soon after the ttl of its Expire",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, 2*ttl)
			}}
		},
	},
	{
		bug:    "Expire creates",
		breaks: "Expire of an absent key returns false and creates nothing",
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
		breaks: "Expire of an absent key returns false and creates nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				_, err := m.Legacy().Expire(ctx, key, ttl)
				return true, err
			}}
		},
	},
	{
		bug:    "MaxTTL is not the limit",
		breaks: "MaxTTL returns the limit of a ttl",
		store: func(*memory.Store) backends.LegacyStore {
			return memory.New(memory.WithMaxTTL(backends.DefaultMaxTTL + 1)).Legacy()
		},
	},
	{
		bug:    "Expire cuts a ttl down to the limit",
		breaks: "Expire with a ttl outside the limits is a permanent error, and the expiry stays",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), expire: func(ctx context.Context, key string, ttl time.Duration) (bool, error) {
				return m.Legacy().Expire(ctx, key, min(ttl, backends.DefaultMaxTTL))
			}}
		},
	},
	{
		bug:    "Expire deletes if the ttl is not positive",
		breaks: "Expire with a ttl outside the limits is a permanent error, and the expiry stays",
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
		breaks: "TxExpireIf makes a value that matches live for ttl from now, even if that is shorter",
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
		breaks: "TxExpireIf makes a value that matches live for ttl from now, even if that is shorter",
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
		breaks: "a value never lives shorter than the ttl of its TxExpireIf, not even by a fraction of a millisecond",
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
		breaks: "TxExpireIf of another value, or of an absent key, returns false and changes nothing",
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
		bug:    "TxExpireIf compares the beginning of the value",
		breaks: "TxExpireIf of another value, or of an absent key, returns false and changes nothing",
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
		bug:    "TxExpireIf takes an absent key for an empty value",
		breaks: "TxExpireIf of another value, or of an absent key, returns false and changes nothing",
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
		breaks: "TxExpireIf with a ttl outside the limits is a permanent error, and the expiry stays",
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
		breaks: "TxDeleteIf removes a value that matches",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				present, _, found := m.Get(key)
				return found && present == value, nil
			}}
		},
	},
	{
		bug:    "TxDeleteIf returns true if nothing is left",
		breaks: "TxDeleteIf removes a value that matches",
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
		breaks: "TxDeleteIf of another value, or of an absent key, returns false and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: func(ctx context.Context, key, value string) (bool, error) {
				return m.Legacy().Delete(ctx, key)
			}}
		},
	},
	{
		bug:    "TxDeleteIf returns false, but deletes",
		breaks: "TxDeleteIf of another value, or of an absent key, returns false and changes nothing",
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
		breaks: "GetBit of an absent key returns off, and creates nothing",
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
		bug:    "SetBit never clears a bit",
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
		bug:    "bits of a byte are one bit",
		breaks: "SetBit changes no other bit",
		store:  bitsAt(func(offset uint32) uint32 { return offset / 8 }),
	},
	{
		bug:    "bits that are 17 apart are one bit",
		breaks: "SetBit changes no other bit",
		store:  bitsAt(func(offset uint32) uint32 { return offset % 17 }),
	},
	{
		bug:    "bits lie the lowest first",
		breaks: "bit n is in byte n/8 of the value, the highest bit first",
		store:  bitsAt(func(offset uint32) uint32 { return offset ^ 7 }),
	},
	{
		bug:    "SetBit removes the expiry",
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

// bitsAt is a store that mistakes the offset of a bit.
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
		breaks: "commands that need a string return a permanent error that matches ErrWrongType for another type",
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
		breaks: "commands that need a string return a permanent error that matches ErrWrongType for another type",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				old, found, err := m.Legacy().GetSet(ctx, key, value)
				m.Set(key, value, 0)
				return old, found, err
			}}
		},
	},
	{
		bug:    "SetBit of another type is not permanent",
		breaks: "commands that need a string return a permanent error that matches ErrWrongType for another type",
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
		breaks: "every command with a ctx that is done returns the error of the ctx and changes nothing",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), left: func(_ context.Context, key string) (time.Duration, bool, error) {
				return m.Legacy().Left(background, key)
			}}
		},
	},
	{
		bug:    "SetBit looks at its ctx too late",
		breaks: "every command with a ctx that is done returns the error of the ctx and changes nothing",
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
		breaks: "a value may be any text, and no text has a special meaning",
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
		bug:    "values are trimmed",
		breaks: "a value may be any text, and no text has a special meaning",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				return m.Legacy().SetNXForever(ctx, key, strings.TrimSpace(value))
			}}
		},
	},
	{
		bug:    "SetNXForever trims keys",
		breaks: "a key may be any text, and keys that differ in any byte are different keys",
		store: func(m *memory.Store) backends.LegacyStore {
			return legacyDouble{LegacyStore: m.Legacy(), setNXForever: func(ctx context.Context, key, value string) (bool, error) {
				return m.Legacy().SetNXForever(ctx, strings.TrimSpace(key), value)
			}}
		},
	},
	{
		bug:    "SetNXForever looks, and acts later",
		breaks: "of concurrent SetNXForever calls exactly one is granted",
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
		bug:    "SetBit looks, and acts later",
		breaks: "of concurrent SetBit calls exactly one changes the bit",
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
		bug:    "SetBit writes back a value that it has read",
		breaks: "concurrent SetBit calls for different bits all take effect",
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
		bug:    "Delete looks, and acts later",
		breaks: "of concurrent Delete calls exactly one returns true",
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
		bug:    "TxDeleteIf looks, and acts later",
		breaks: "of concurrent TxDeleteIf calls exactly one returns true",
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
		bug:    "GetSet looks, and acts later",
		breaks: "concurrent GetSet calls each return the value that another one has stored",
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
		bug:    "TxDeleteIf deletes a value that was stored meanwhile",
		breaks: "TxDeleteIf never removes a value that was stored during the call",
		store: func(m *memory.Store) backends.LegacyStore {
			looks := looksAndThenDeletes(m)
			return legacyDouble{LegacyStore: m.Legacy(), txDeleteIf: looks, getSet: func(ctx context.Context, key, value string) (string, bool, error) {
				time.Sleep(leap + leap/2) // between the first deletion and the second
				return m.Legacy().GetSet(ctx, key, value)
			}}
		},
	},
	{
		bug:    "TxExpireIf fails if the key was changed",
		breaks: "TxExpireIf succeeds even if other clients change the key during the call",
		store:  givesUp,
	},
}

// givesUp is a store whose TxExpireIf returns false if there was an Expire meanwhile.
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
