package backendtest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

var fencedKeySentences = []sentence{
	{"every key has numbers of its own", func(x *fixture) {
		keys := x.oddKeys()
		for i, key := range keys {
			x.numbered(key, "mine", byCount, 1)
			x.raise(key, "mine", uint64(100*(i+1)), true)
			x.remove(key, "mine")
		}
		for i, key := range keys {
			x.numbered(key, "mine", byCount, uint64(100*(i+1)+1))
			x.remove(key, "mine")
		}
	}},
	{"what the store keeps beside a key is not in the way of another", func(x *fixture) {
		for _, key := range x.oddKeys() {
			for _, n := range x.numberings {
				for _, beside := range x.Beside(key) {
					if len(beside) > 512 || !utf8.ValidString(beside) || strings.Contains(beside, "\x00") {
						continue // package locker accepts no such key
					}
					last := x.next(x.own(beside), "mine", n, 0)
					first := x.next(key, "mine", n, 0)
					x.remove(beside, "mine")
					x.remove(key, "mine")
					x.next(key, "mine", n, first)
					x.next(beside, "mine", n, last)
					x.remove(beside, "mine")
					x.remove(key, "mine")
				}
			}
		}
	}},
}

var fencedConcurrencySentences = []sentence{
	{"of concurrent grants of a key each has a greater number than the one before", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		var mu sync.Mutex
		var numbers []uint64
		together(callers, func(i int) {
			value := fmt.Sprint("caller", i)
			for range 2 * rounds {
				res, err := x.draw(key, value, x.long, n)
				if err != nil {
					x.Errorf("SetNXFenced: %v", err)
				}
				if !res.OK {
					continue
				}
				mu.Lock()
				numbers = append(numbers, res.Fence)
				mu.Unlock()
				if _, err := x.store.DeleteIf(x.Context(), key, value); err != nil {
					x.Errorf("DeleteIf: %v", err)
				}
			}
		})
		for i := 1; i < len(numbers); i++ {
			if numbers[i] <= numbers[i-1] {
				x.Fatalf("after the number %d came %d", numbers[i-1], numbers[i])
			}
		}
	})},
	{"concurrent SetNXFenced with the same value all have the same number", both(func(x *fixture, n numbering) {
		for round := range rounds {
			key := x.key(fmt.Sprint(n, round))
			var first atomic.Uint64
			together(callers, func(int) {
				res, err := x.draw(key, "mine", x.long, n)
				if err != nil || !res.OK || res.Fence == 0 {
					x.Errorf("SetNXFenced = %+v, %v; want it granted and numbered", res, err)
				}
				if !first.CompareAndSwap(0, res.Fence) && first.Load() != res.Fence {
					x.Errorf("one ownership has the numbers %d and %d", first.Load(), res.Fence)
				}
			})
		}
	})},
	{"of concurrent RaiseFence the greatest remains", func(x *fixture) {
		for round := range rounds {
			key := x.key(fmt.Sprint("round", round))
			x.next(key, "mine", byCount, 0)
			together(callers, func(i int) {
				if _, err := x.fenced.RaiseFence(x.Context(), key, "mine", uint64(100+i)); err != nil {
					x.Errorf("RaiseFence: %v", err)
				}
			})
			x.numbered(key, "mine", byCount, 100+callers-1)
		}
	}},
}
