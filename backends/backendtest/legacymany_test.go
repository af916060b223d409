package backendtest

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

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
