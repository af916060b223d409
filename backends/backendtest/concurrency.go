package backendtest

import (
	"fmt"
	"sync/atomic"
)

const (
	callers = 32
	rounds  = 5
)

var concurrencySentences = []sentence{
	{"of many concurrent SetNX with different values exactly one is granted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			var winners atomic.Int64
			var winner atomic.Value
			together(callers, func(i int) {
				mine := fmt.Sprint("caller", i)
				res, err := x.store.SetNX(x.Context(), key, mine, x.long)
				if err != nil {
					x.Errorf("SetNX: %v", err)
				}
				if res.OK {
					winners.Add(1)
					winner.Store(mine)
				}
			})
			if n := winners.Load(); n != 1 {
				x.Fatalf("%d of %d callers were granted the key", n, callers)
			}
			if got, _, _ := x.outside.Get(key); got != winner.Load() {
				x.Fatalf("the key holds %q; %q was granted", got, winner.Load())
			}
		}
	}},
	{"concurrent SetNX with the same value are all granted", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			together(callers, func(int) {
				if res, err := x.store.SetNX(x.Context(), key, "mine", x.long); err != nil || !res.OK {
					x.Errorf("SetNX = %+v, %v; want it granted", res, err)
				}
			})
		}
	}},
	{"of many concurrent DeleteIf with the same value exactly one says true", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.grant(key, "mine", x.long)
			var deleted atomic.Int64
			together(callers, func(int) {
				ok, err := x.store.DeleteIf(x.Context(), key, "mine")
				if err != nil {
					x.Errorf("DeleteIf: %v", err)
				}
				if ok {
					deleted.Add(1)
				}
			})
			if n := deleted.Load(); n != 1 {
				x.Fatalf("%d of %d callers deleted the value", n, callers)
			}
		}
	}},
	{"a DeleteIf never removes the value of a SetNX that came between", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.grant(key, "old", x.long)
			var winners atomic.Int64
			together(callers, func(i int) {
				if i%2 == 0 {
					if _, err := x.store.DeleteIf(x.Context(), key, "old"); err != nil {
						x.Errorf("DeleteIf: %v", err)
					}
					return
				}
				res, err := x.store.SetNX(x.Context(), key, fmt.Sprint("new", i), x.long)
				if err != nil {
					x.Errorf("SetNX: %v", err)
				}
				if res.OK {
					winners.Add(1)
				}
			})
			_, _, held := x.outside.Get(key)
			if n := winners.Load(); n > 1 || held != (n == 1) {
				x.Fatalf("%d callers were granted the key, which is held: %v", n, held)
			}
		}
	}},
}
