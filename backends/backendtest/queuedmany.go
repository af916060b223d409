package backendtest

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var queuedConcurrencySentences = []sentence{
	{"of many who ask at once each has a place of his own", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := make([]*waiter, callers)
		for i := range all {
			all[i] = x.comes(key)
		}
		places := make([]int, callers)
		together(callers, func(i int) { places[i] = x.ask(all[i], i%2 == 0).Position })
		sorted := slices.Sorted(slices.Values(places))
		for i, place := range sorted {
			if place != i+1 {
				x.Fatalf("the places are %v", places)
			}
		}
		for i, w := range all {
			x.stand(w, places[i])
		}
	}},
	{"many who wait have the key one after the other, in the order of their places", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, callers)
		var order []int
		late := false // somebody did not come before his reservation ended
		var holders atomic.Int64
		var mu sync.Mutex
		passed := time.Now()
		var everybody sync.WaitGroup
		for i, w := range all {
			everybody.Go(func() {
				x.wantTurn(w)
				for !x.ask(w, true).OK {
					x.wantTurn(w)
				}
				if n := holders.Add(1); n != 1 {
					x.Errorf("%d have the key at once", n)
				}
				mu.Lock()
				late = late || !x.lasts(life{earliest: passed.Add(backends.Reservation)})
				order = append(order, i)
				passed = time.Now()
				mu.Unlock()
				holders.Add(-1)
				x.remove(key, w.value())
			})
		}
		mu.Lock()
		passed = time.Now()
		mu.Unlock()
		x.remove(key, "before")
		everybody.Wait()
		if len(order) != callers || !late && !slices.IsSorted(order) {
			x.Fatalf("they had the key in the order %v", order)
		}
		x.wantNothing(key)
	}},
	{"nobody is stuck when others give up", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "before", x.long)
		all := x.line(key, callers)
		var granted atomic.Int64
		var everybody sync.WaitGroup
		for i, w := range all {
			everybody.Go(func() {
				if i%2 == 0 {
					time.Sleep(time.Duration(i) * x.Resolution)
					w.goes()
					return
				}
				x.wantTurn(w)
				for !x.ask(w, i%4 == 1).OK {
					x.wantTurn(w)
				}
				granted.Add(1)
				time.Sleep(x.Resolution)
				x.remove(key, w.value())
			})
		}
		x.remove(key, "before")
		everybody.Wait()
		if n := granted.Load(); n != callers/2 {
			x.Fatalf("%d of %d who waited were granted the key", n, callers/2)
		}
	}},
}
