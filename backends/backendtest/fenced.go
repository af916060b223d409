package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/backends"
)

var ofFenced = suite[backends.FencedStore, Outside]{
	sentences: func(h FencedHarness) []sentence {
		sentences := slices.Concat(numberSentences, countSentences, raiseSentences, fencedKeySentences,
			fencedConcurrencySentences, countDays(h.Bubble))
		if h.Clock {
			sentences = slices.Concat(sentences, clockSentences, clockDays(h.Bubble))
		}
		return sentences
	},
	give: func(x *fixture, store backends.FencedStore, _ Outside) {
		x.store, x.fenced, x.numberings = store, store, []numbering{byCount}
		if x.Clock {
			x.numberings = append(x.numberings, byClock)
		}
		if !x.NoQueue {
			x.queue, _ = store.(queue)
		}
		x.shared, _ = store.(backends.SharedStore)
		x.transfers, _ = store.(backends.TransferStore)
		x.holdTransfers, _ = store.(backends.SharedTransferStore)
	},
}

// countSentences are about SetNXFenced.
var countSentences = []sentence{
	{"SetNXFenced gives the last number plus one", func(x *fixture) {
		key := x.key("k")
		for i := range uint64(20) {
			x.numbered(key, "mine", byCount, i+1)
			x.remove(key, "mine")
		}
	}},
	{"a grant that would need the number 2^53 is a permanent error, and stores nothing", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		const last uint64 = 1<<53 - 1
		x.next(key, "mine", n, 0)
		x.raise(key, "mine", last, true)
		x.numbered(key, "mine", n, last)
		x.remove(key, "mine")
		res, err := x.draw(key, "theirs", x.long, n)
		if err == nil || res.OK {
			x.Fatalf("numbered grant after the number %d = %+v, %v; want an error", last, res, err)
		}
		x.wantPermanent("SetNXFenced", err)
		x.wantNothing(key)
	})},
}

// clockSentences are about a store that numbers by its clock as well, with one counter for both.
var clockSentences = []sentence{
	{"SetNXNumbered gives the time of the store in µs since 1970", func(x *fixture) {
		key := x.key("k")
		for range 3 {
			x.wantNow("SetNXNumbered", func() (backends.Result, error) { return x.draw(key, "mine", x.long, byClock) })
			x.remove(key, "mine")
			time.Sleep(5 * time.Millisecond)
		}
	}},
	{"waiters, holds and transfers are numbered by the time of the store too", func(x *fixture) {
		if x.queue != nil {
			for says, inOrder := range map[string]bool{"in any order": false, "in order": true} {
				w := x.newWaiter(x.key("waited for " + says))
				x.grant(w.key, "before", x.long)
				x.remove(w.key, "before")
				x.wantNow("SetNXNumbered for a waiter "+says, func() (backends.Result, error) {
					t := backends.Turn{Waiter: w.name, InOrder: inOrder}
					return x.store.(backends.NumberedStore).SetNXNumbered(x.Context(), w.key, w.value(), x.long, t)
				})
			}
		}
		if x.shared != nil {
			x.wantNow("Enter", func() (backends.Result, error) {
				return x.shared.Enter(x.Context(), x.key("shared"), "mine", x.long, backends.Admission{Numbered: true})
			})
		}
		if x.transfers != nil {
			key := x.key("transfer")
			x.grant(key, "old", x.long)
			x.wantNow("Transfer", func() (backends.Result, error) {
				return x.transfers.Transfer(x.Context(), key, "old", "new", x.long, true)
			})
		}
		if x.holdTransfers != nil {
			key := x.key("hold")
			x.admit(key, "old", x.long, backends.Admission{}, 1, -1)
			x.wantNow("TransferHold", func() (backends.Result, error) {
				return x.holdTransfers.TransferHold(x.Context(), key, "old", "new", x.long, "", true)
			})
		}
	}},
	{"numbers by the clock rise within a µs", func(x *fixture) {
		key := x.key("k")
		var last uint64
		for i := range 30 { // in a bubble no time passes
			value := fmt.Sprint("mine", i)
			last = x.next(key, value, byClock, last)
			x.remove(key, value)
		}
	}},
	{"SetNXNumbered gives the last number plus one if that is ahead of the clock", func(x *fixture) {
		key := x.key("k")
		ahead := x.ahead(key, 30*24*time.Hour)
		x.numbered(key, "mine", byClock, ahead+1)
		x.remove(key, "mine")
		x.numbered(key, "mine", byClock, ahead+2)
	}},
	{"numbers rise when SetNXFenced and SetNXNumbered take turns", func(x *fixture) {
		key := x.key("k")
		grant := func(n numbering, last uint64) uint64 {
			last = x.next(key, "mine", n, last)
			x.remove(key, "mine")
			return last
		}
		last := grant(byCount, 0)
		for range rounds {
			last = grant(byClock, last)
			if next := grant(byCount, last); next != last+1 {
				x.Fatalf("SetNXFenced after SetNXNumbered gave %d; want %d plus one", next, last)
			}
			last = grant(byCount, last+1)
		}
	}},
}

// countDays and clockDays take days, so they need fake time.
func countDays(bubble bool) []sentence {
	if !bubble {
		return nil
	}
	return []sentence{
		{"SetNXFenced goes on counting after years", func(x *fixture) {
			key := x.key("k")
			for i := range uint64(3) {
				x.numbered(key, "mine", byCount, i+1)
				x.remove(key, "mine")
				time.Sleep(2 * 365 * 24 * time.Hour)
			}
		}},
	}
}

func clockDays(bubble bool) []sentence {
	if !bubble {
		return nil
	}
	return []sentence{
		{"a number that is ahead of the clock outlives FenceRetention by that difference", func(x *fixture) {
			key := x.key("k")
			const far = 10 * 24 * time.Hour
			ahead := x.ahead(key, far)
			x.numbered(key, "mine", byClock, ahead+1)
			x.remove(key, "mine")
			time.Sleep(far - time.Minute)
			x.numbered(key, "mine", byClock, ahead+2)
			x.remove(key, "mine")
			time.Sleep(backends.FenceRetention + time.Minute)
			x.next(key, "mine", byClock, ahead+2)
		}},
	}
}

var raiseSentences = []sentence{
	{"RaiseFence by the holder lands, and the next number is greater", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		to := x.next(key, "mine", n, 0) + uint64(time.Hour/time.Microsecond)
		x.raise(key, "mine", to, true)
		x.remove(key, "mine")
		x.numbered(key, "mine", n, to+1)
	})},
	{"RaiseFence to the present number lands", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		number := x.next(key, "mine", n, 0)
		x.raise(key, "mine", number, true)
		x.numbered(key, "mine", n, number)
		x.remove(key, "mine")
		x.next(key, "mine", n, number)
	})},
	{"a second RaiseFence returns the same", func(x *fixture) {
		key := x.key("k")
		x.next(key, "mine", byCount, 0)
		for range 3 {
			x.raise(key, "mine", 7, true)
		}
		x.numbered(key, "mine", byCount, 7)
	}},
	{"RaiseFence never lowers a number", func(x *fixture) {
		key := x.key("k")
		x.next(key, "mine", byCount, 0)
		for _, to := range []uint64{9, 10, 100, 101} { // as texts they are in another order
			x.raise(key, "mine", to, true)
			x.raise(key, "mine", to-1, false)
			x.raise(key, "mine", 0, false)
		}
		x.remove(key, "mine")
		x.numbered(key, "mine", byCount, 102)
	}},
	{"a second SetNXFenced has the number that RaiseFence has set", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		to := x.next(key, "mine", n, 0) + 1000
		x.raise(key, "mine", to, true)
		x.numbered(key, "mine", n, to)
	})},
	{"RaiseFence gives a number to a key that has none", func(x *fixture) {
		key := x.key("k")
		x.grant(key, "mine", x.long)
		x.raise(key, "mine", 7, true)
		x.remove(key, "mine")
		x.numbered(key, "mine", byCount, 8)
	}},
	{"numbers are exact below 2^53", both(func(x *fixture, n numbering) {
		for _, to := range []uint64{4e15 + 1, 1<<53 - 3} { // both are ahead of the clock
			key := x.key(fmt.Sprint(to, n))
			x.next(key, "mine", byCount, 0)
			x.raise(key, "mine", to, true)
			x.raise(key, "mine", to-1, false)
			x.numbered(key, "mine", byCount, to)
			x.remove(key, "mine")
			x.numbered(key, "mine", n, to+1)
			x.remove(key, "mine")
			x.numbered(key, "mine", byCount, to+2)
		}
	})},
	{"RaiseFence to 2^53 or more is a permanent error and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.numbered(key, "mine", byCount, 1)
		for _, to := range []uint64{1 << 53, 1<<64 - 1} {
			landed, err := x.fenced.RaiseFence(x.Context(), key, "mine", to)
			if err == nil || landed {
				x.Fatalf("RaiseFence to %d = %v, %v; want an error", to, landed, err)
			}
			x.wantPermanent("RaiseFence", err)
			x.numbered(key, "mine", byCount, 1)
		}
	}},
	{"RaiseFence with another value does not land and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.numbered(key, "token-42", byCount, 1)
		for _, near := range []string{"token-4", "oken-42", "token-421", "TOKEN-42", "token-42\n", "*", ""} {
			x.raise(key, near, 1, false)
			x.raise(key, near, 1000, false)
		}
		x.numbered(key, "token-42", byCount, 1)
		x.remove(key, "token-42")
		x.numbered(key, "theirs", byCount, 2)
	}},
	{"RaiseFence after a release does not land", func(x *fixture) {
		key := x.key("k")
		x.raise(key, "mine", 1000, false) // before the first grant
		x.numbered(key, "mine", byCount, 1)
		x.remove(key, "mine")
		x.raise(key, "mine", 1, false)
		x.raise(key, "mine", 1000, false)
		x.raise(key, "", 1000, false)
		x.wantNothing(key)
		x.numbered(key, "theirs", byCount, 2)
		x.raise(key, "mine", 1000, false)
		x.numbered(key, "theirs", byCount, 2)
	}},
	{"RaiseFence after an expiry does not land", func(x *fixture) {
		key := x.key("k")
		last := x.expired(key, byCount)
		x.raise(key, "expired", 1000, false)
		x.wantNothing(key)
		x.numbered(key, "theirs", byCount, last+1)
	}},
	{"RaiseFence leaves the value and its expiry alone", func(x *fixture) {
		key := x.key("k")
		l := x.grant(key, "mine", x.long)
		x.raise(key, "mine", 7, true)
		x.wantValue(key, "mine", l)
	}},
	{"RaiseFence of a value of another type is a permanent error that matches ErrWrongType", func(x *fixture) {
		key := x.key("k")
		x.outside.SetOther(key)
		for _, value := range []string{"mine", ""} {
			landed, err := x.fenced.RaiseFence(x.Context(), key, value, 7)
			if landed || !errors.Is(err, backends.ErrWrongType) {
				x.Fatalf("RaiseFence = %v, %v; want an error that matches ErrWrongType", landed, err)
			}
			x.wantPermanent("RaiseFence", err)
		}
		x.wantForever(key, "")
	}},
	{"RaiseFence with a ctx that is done returns the error of the ctx and changes nothing", func(x *fixture) {
		key := x.key("k")
		x.numbered(key, "mine", byCount, 1)
		x.done("RaiseFence", func(ctx context.Context) error {
			_, err := x.fenced.RaiseFence(ctx, key, "mine", 7)
			return err
		})
		x.numbered(key, "mine", byCount, 1)
	}},
}

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
	{"what the store keeps beside a key does not affect a lock of that name", func(x *fixture) {
		for _, key := range x.oddKeys() {
			for _, n := range x.numberings {
				for _, beside := range x.Beside(key) {
					if len(beside) > 512 || !utf8.ValidString(beside) || strings.Contains(beside, "\x00") {
						continue // no key of a lock: package locker refuses it
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
	{"concurrent grants of a key have rising numbers", both(func(x *fixture, n numbering) {
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
				x.Fatalf("number %d came after %d", numbers[i], numbers[i-1])
			}
		}
	})},
	{"concurrent SetNXFenced calls with the same value all have the same number", both(func(x *fixture, n numbering) {
		for round := range rounds {
			key := x.key(fmt.Sprint(n, round))
			var first atomic.Uint64
			together(callers, func(int) {
				res, err := x.draw(key, "mine", x.long, n)
				if err != nil || !res.OK || res.Fence == 0 {
					x.Errorf("numbered grant = %+v, %v; want it granted, with a number", res, err)
				}
				if !first.CompareAndSwap(0, res.Fence) && first.Load() != res.Fence {
					x.Errorf("one ownership has the numbers %d and %d", first.Load(), res.Fence)
				}
			})
		}
	})},
	{"of concurrent RaiseFence calls the greatest number remains", func(x *fixture) {
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

// raise calls RaiseFence; want says whether it must land.
func (x *fixture) raise(key, value string, to uint64, want bool) {
	x.Helper()
	if landed, err := x.fenced.RaiseFence(x.Context(), key, value, to); err != nil || landed != want {
		x.Fatalf("RaiseFence(%.60q, %.60q, %d) = %v, %v; want %v", key, value, to, landed, err, want)
	}
}

// wantNow makes a call, which must be granted with the time of the store as its number.
func (x *fixture) wantNow(name string, call func() (backends.Result, error)) {
	x.Helper()
	slack := time.Millisecond
	if !x.Bubble {
		slack = patience // the clock may be set meanwhile
	}
	began := time.Now()
	res, err := call()
	if err != nil || !res.OK {
		x.Fatalf("%s = %+v, %v; want it granted", name, res, err)
	}
	if at := time.UnixMicro(int64(res.Fence)); at.Before(began.Add(-slack)) || at.After(time.Now().Add(slack)) {
		x.Fatalf("the number of %s is %d, which means %v; now is %v", name, res.Fence, at.UTC(), time.Now().UTC())
	}
}

// ahead leaves key free, with a number that is ahead of the clock.
func (x *fixture) ahead(key string, by time.Duration) uint64 {
	x.Helper()
	to := x.next(key, "ahead", byClock, 0) + uint64(by/time.Microsecond)
	x.raise(key, "ahead", to, true)
	x.remove(key, "ahead")
	return to
}
