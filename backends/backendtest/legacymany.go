package backendtest

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// legacyManySentences are about odd texts, and about many at once.
var legacyManySentences = []sentence{
	{"a value may hold any text, and no text in it means anything", func(x *fixture) {
		key := x.key("k")
		for i, ours := range oddValues {
			x.setForever(key, ours, true)
			x.wantForever(key, ours)
			x.get(key, ours, true)
			for next := 1; next < 6; next++ { // those that look alike are together
				other := oddValues[(i+next)%len(oddValues)]
				x.txExpireNot(key, other)
				x.txDelete(key, other, false)
			}
			x.wantForever(key, ours)
			x.getSet(key, ours+"~", ours, true)
			x.txExpire(key, ours+"~", x.long)
			x.txDelete(key, ours+"~", true)
		}
	}},
	{"a key may hold any text, and no two keys are the same key", func(x *fixture) {
		keys := x.oddKeys()
		for i, key := range keys {
			x.setForever(key, fmt.Sprint("value", i), true)
		}
		for i, key := range keys {
			x.get(key, fmt.Sprint("value", i), true)
			x.expire(key, x.long)
			x.getSet(key, "old", fmt.Sprint("value", i), true)
			x.txExpire(key, "old", x.long)
			x.txDelete(key, "old", true)
			x.setBit(key, 3, true, false)
			x.bit(key, 3, true)
			x.deletes(key, true)
			x.wantNothing(key)
		}
	}},
	{"of many concurrent SetNXForever exactly one is granted", func(x *fixture) {
		x.oneOf(func(_ string) {}, func(key string, i int) (bool, error) {
			return x.legacy.SetNXForever(x.Context(), key, fmt.Sprint("caller", i))
		})
	}},
	{"of many concurrent SetBit exactly one sees the bit change", func(x *fixture) {
		x.oneOf(func(_ string) {}, func(key string, _ int) (bool, error) {
			was, err := x.legacy.SetBit(x.Context(), key, 5, true)
			return !was, err
		})
	}},
	{"concurrent SetBit of different bits all remain", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			together(callers, func(i int) {
				if was, err := x.legacy.SetBit(x.Context(), key, uint32(i), true); err != nil || was {
					x.Errorf("SetBit = %v, %v; want false", was, err)
				}
			})
			for i := range callers {
				x.bit(key, uint32(i), true)
			}
		}
	}},
	{"of many concurrent Delete exactly one finds something", func(x *fixture) {
		x.oneOf(func(key string) { x.put(key, "theirs", x.long) }, func(key string, _ int) (bool, error) {
			return x.legacy.Delete(x.Context(), key)
		})
	}},
	{"of many concurrent TxDeleteIf exactly one says true", func(x *fixture) {
		x.oneOf(func(key string) { x.put(key, "mine", x.long) }, func(key string, _ int) (bool, error) {
			return x.legacy.TxDeleteIf(x.Context(), key, "mine")
		})
	}},
	{"of concurrent GetSet each returns what another has stored", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var mu sync.Mutex
			after := make(map[string]string) // the value that replaced it; "" stands for the free key
			together(callers, func(i int) {
				value := fmt.Sprint("caller", i)
				old, found, err := x.legacy.GetSet(x.Context(), key, value)
				if err != nil || found != (old != "") {
					x.Errorf("GetSet = %q, %v, %v", old, found, err)
				}
				mu.Lock()
				defer mu.Unlock()
				after[old] = value
			})
			last, n := "", 0
			for ; n < callers && after[last] != ""; n++ {
				last = after[last]
			}
			if n != callers {
				x.Fatalf("%d of %d values follow one another: %v", n, callers, after)
			}
			x.get(key, last, true)
		}
	}},
	{"a TxDeleteIf never removes what came between", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.outside.Set(key, "old", 0)
			together(callers, func(i int) {
				if i == callers/2 {
					if _, _, err := x.legacy.GetSet(x.Context(), key, "new"); err != nil {
						x.Errorf("GetSet: %v", err)
					}
					return
				}
				if _, err := x.legacy.TxDeleteIf(x.Context(), key, "old"); err != nil {
					x.Errorf("TxDeleteIf: %v", err)
				}
			})
			x.get(key, "new", true)
		}
	}},
	{"TxExpireIf is done though others touch the key in between", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.put(key, "mine", x.long)
			together(callers, func(i int) {
				var ok bool
				var err error
				if i%2 == 0 {
					ok, err = x.legacy.TxExpireIf(x.Context(), key, "mine", x.long)
				} else {
					ok, err = x.legacy.Expire(x.Context(), key, x.long)
				}
				if err != nil || !ok {
					x.Errorf("TxExpireIf or Expire = %v, %v; want true", ok, err)
				}
			})
		}
	}},
}

// oneOf checks that of many that call at once after prepare exactly one is told true.
func (x *fixture) oneOf(prepare func(key string), call func(key string, i int) (bool, error)) {
	x.Helper()
	for round := range rounds {
		key := x.key(fmt.Sprint("round", round))
		prepare(key)
		var winners atomic.Int64
		together(callers, func(i int) {
			ok, err := call(key, i)
			if err != nil {
				x.Errorf("caller %d: %v", i, err)
			}
			if ok {
				winners.Add(1)
			}
		})
		if n := winners.Load(); n != 1 {
			x.Fatalf("%d of %d callers were told so; want 1", n, callers)
		}
	}
}
