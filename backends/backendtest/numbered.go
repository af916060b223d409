package backendtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofNumbered = suite[backends.NumberedStore, Outside]{
	sentences: func(h NumberedHarness) []sentence {
		if h.NoQueue {
			return numberSentences
		}
		return slices.Concat(numberSentences, numberedTurnSentences)
	},
	give: func(x *fixture, store backends.NumberedStore, _ Outside) {
		x.store, x.numbers, x.numberings = store, store, []numbering{byClock}
		x.queued, _ = store.(backends.QueuedStore)
		x.queue = x.queued
	},
}

var numberSentences = []sentence{
	{"a number is at least 1, and greater after a release", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		var last uint64
		for range rounds {
			last = x.next(key, "mine", n, last)
			x.remove(key, "mine")
		}
	})},
	{"a number is greater after an expiry", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.next(key, "first", n, x.expired(key, n))
	})},
	{"a number is greater after an operator has deleted the key", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		last := x.next(key, "mine", n, 0)
		x.outside.Delete(key)
		x.next(key, "mine", n, last) // a new ownership, although the value is the same
	})},
	{"a number is greater after grants without a number", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.grant(key, "other", x.long)
		x.remove(key, "other")
		last := x.next(key, "mine", n, 0)
		x.remove(key, "mine")
		x.grant(key, "other", x.long)
		x.remove(key, "other")
		x.next(key, "mine", n, last)
	})},
	{"a number is greater after attempts that found the key held, which have none", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		last := x.next(key, "mine", n, 0)
		for range rounds {
			res, err := x.draw(key, "theirs", x.long, n)
			if err != nil || res.OK || res.Fence != 0 {
				x.Fatalf("numbered grant of a held key = %+v, %v; want it held, without a number", res, err)
			}
		}
		x.remove(key, "mine")
		x.next(key, "theirs", n, last)
	})},
	{"a second SetNXFenced of the same value has the same number", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.next(key, "theirs", n, 0)
		x.remove(key, "theirs")
		mine := x.next(key, "mine", n, 0)
		for range rounds {
			time.Sleep(2 * x.Resolution)
			x.numbered(key, "mine", n, mine)
			x.extend(key, "mine", x.long)
		}
		x.remove(key, "mine")
		x.next(key, "next", n, mine)
	})},
	{"SetNXFenced numbers a value that was stored without a number", both(func(x *fixture, n numbering) {
		key := x.key(n.String())
		x.grant(key, "mine", x.long)
		number := x.next(key, "mine", n, 0)
		x.numbered(key, "mine", n, number)
		x.remove(key, "mine")
		x.next(key, "theirs", n, number)
	})},
}

var numberedTurnSentences = []sentence{
	{"each waiter that takes its reservation gets a greater number", func(x *fixture) {
		key := x.key("k")
		last := x.next(key, "before", byClock, 0)
		line := x.line(key, 3)
		x.pass(key, "before")
		for _, w := range line {
			x.wantWoken(w)
			last = x.takeNumber(w, last)
			x.remove(key, w.value())
		}
		x.next(key, "mine", byClock, last)
	}},
	{"a number is greater after a waiter took its reservation without a number", func(x *fixture) {
		key := x.key("k")
		last := x.next(key, "before", byClock, 0)
		line := x.line(key, 2)
		x.pass(key, "before")
		x.wantWoken(line[0])
		x.take(line[0])
		x.remove(key, line[0].value())
		x.wantWoken(line[1])
		x.takeNumber(line[1], last)
	}},
	{"waiters of SetNXNumbered and SetNXQueued share one queue", func(x *fixture) {
		x.inTime("a reservation for each waiter", func(key string) bool {
			x.next(key, "before", byClock, 0)
			line := make([]*waiter, 4)
			for i := range line {
				line[i] = x.newWaiter(key)
				res := x.ask(line[i], false)
				if i%2 == 1 {
					res = x.askNumber(line[i], backends.Turn{})
				}
				if res.OK || res.Position != i+1 || res.Fence != 0 {
					x.Fatalf("attempt of waiter %d = %+v; want it held, position %d, and no number", i+1, res, i+1)
				}
			}
			value := "before"
			for i, w := range line {
				l := x.pass(key, value)
				x.wantWoken(w)
				for _, other := range line[i+1:] {
					if res := x.askNumber(other, backends.Turn{}); res.OK && x.lasts(l) {
						x.Fatalf("a waiter behind the head was granted a key that is reserved: %+v", res)
					}
				}
				if !x.lasts(l) {
					return false
				}
				if i%2 == 1 {
					x.takeNumber(w, 0)
				} else {
					x.take(w)
				}
				value = w.value()
			}
			return true
		})
	}},
	{"a reservation has no number, and the key is held for the SetNXNumbered of others", func(x *fixture) {
		x.inTime("a reservation", func(key string) bool {
			last := x.next(key, "before", byClock, 0)
			w := x.line(key, 1)[0]
			l := x.pass(key, "before")
			x.wantWoken(w)
			res, err := x.numbers.SetNXNumbered(x.Context(), key, "mine", x.long, backends.Turn{})
			if !x.lasts(l) {
				return false
			}
			if err != nil || res.OK || res.Fence != 0 {
				x.Fatalf("SetNXNumbered of a key that is reserved for another waiter = %+v, %v; want it held", res, err)
			}
			x.takeNumber(w, last)
			return true
		})
	}},
	{"a second SetNXNumbered for a waiter has the same number", func(x *fixture) {
		key := x.key("k")
		last := x.next(key, "before", byClock, 0)
		w := x.line(key, 1)[0]
		x.pass(key, "before")
		x.wantWoken(w)
		number := x.takeNumber(w, last)
		for i := range rounds {
			time.Sleep(2 * x.Resolution)
			for _, t := range []backends.Turn{{}, {InOrder: true}} {
				if res := x.askNumber(w, t); !res.OK || res.Fence != number {
					x.Fatalf("SetNXNumbered(%+v), call %d = %+v; want the number %d", t, i+2, res, number)
				}
			}
		}
	}},
	{"with InOrder, SetNXNumbered grants a free key to the head of the queue only", func(x *fixture) {
		x.inTime("a reservation", func(key string) bool {
			x.next(key, "before", byClock, 0)
			line := x.line(key, 2)
			began := time.Now()
			x.outside.Delete(key)
			res := x.askNumber(line[1], backends.Turn{InOrder: true})
			if time.Since(began) > backends.Reservation/2 {
				return false
			}
			if res.OK || res.Fence != 0 {
				x.Fatalf("SetNXNumbered with InOrder for the second waiter = %+v; want it held", res)
			}
			x.wantWoken(line[0])
			if res := x.askNumber(line[0], backends.Turn{InOrder: true}); !res.OK || res.Fence == 0 {
				x.Fatalf("SetNXNumbered with InOrder for the head = %+v; want it granted and numbered", res)
			}
			return true
		})
	}},
	{"concurrent grants to waiters have rising numbers", func(x *fixture) {
		key := x.key("k")
		numbers := make(chan uint64, callers*rounds)
		together(callers, func(i int) {
			for round := range rounds {
				w := x.newWaiter(key)
				res := x.askNumber(w, backends.Turn{})
				for ; !res.OK; res = x.askNumber(w, backends.Turn{}) {
					x.wantWoken(w)
				}
				numbers <- res.Fence
				if _, err := x.store.DeleteIf(x.Context(), key, w.value()); err != nil {
					x.Errorf("DeleteIf of caller %d in round %d: %v", i, round, err)
				}
			}
		})
		close(numbers)
		var last uint64
		for n := range numbers {
			if n <= last {
				x.Fatalf("number %d came after %d", n, last)
			}
			last = n
		}
	}},
}

// askNumber calls SetNXNumbered for w, with the value of w.
func (x *fixture) askNumber(w *waiter, t backends.Turn) backends.Result {
	x.Helper()
	t.Waiter = w.name
	res, err := x.numbers.SetNXNumbered(x.Context(), w.key, w.value(), x.long, t)
	if err != nil {
		x.Fatalf("SetNXNumbered(%.60q) for a waiter: %v", w.key, err)
	}
	return res
}

// takeNumber calls SetNXNumbered for w, which must be granted with a number greater than last.
func (x *fixture) takeNumber(w *waiter, last uint64) uint64 {
	x.Helper()
	res := x.askNumber(w, backends.Turn{})
	if !res.OK || res.Fence <= last || res.Position != 0 {
		x.Fatalf("SetNXNumbered(%.60q) for the head of the queue = %+v; want it granted, and a number over %d", w.key, res, last)
	}
	return res.Fence
}

// numbering is a way to get a number from a store.
type numbering int

const (
	byCount numbering = iota + 1 // SetNXFenced
	byClock                      // SetNXNumbered
)

func (n numbering) String() string {
	return map[numbering]string{byCount: "SetNXFenced", byClock: "SetNXNumbered"}[n]
}

// draw asks store for a numbered grant. The caller takes no position in a queue.
func draw(ctx context.Context, store backends.Store, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
	if n == byCount {
		return store.(backends.FencedStore).SetNXFenced(ctx, key, value, ttl)
	}
	return store.(backends.NumberedStore).SetNXNumbered(ctx, key, value, ttl, backends.Turn{})
}

// both makes a sentence about each numbering of the store.
func both(holds func(x *fixture, n numbering)) func(x *fixture) {
	return func(x *fixture) {
		for _, n := range x.numberings {
			holds(x, n)
		}
	}
}

// draw asks the store of the sentence for a numbered grant.
func (x *fixture) draw(key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
	return draw(x.Context(), x.store, key, value, ttl, n)
}

// next asks for a numbered grant, which must be granted with a number greater than last.
func (x *fixture) next(key, value string, n numbering, last uint64) uint64 {
	x.Helper()
	res, err := x.draw(key, value, x.long, n)
	if err != nil || !res.OK || res.Fence <= last {
		x.Fatalf("%v(%.60q, %.60q, %v) = %+v, %v; want it granted, and a number over %d",
			n, key, value, x.long, res, err, last)
	}
	return res.Fence
}

// numbered asks for a numbered grant, which must have the number want.
func (x *fixture) numbered(key, value string, n numbering, want uint64) {
	x.Helper()
	if got := x.next(key, value, n, 0); got != want {
		x.Fatalf("%v(%.60q, %.60q, %v) gave the number %d; want %d", n, key, value, x.long, got, want)
	}
}

// expired returns the number of a grant of the value "expired", after its end.
func (x *fixture) expired(key string, n numbering) uint64 {
	x.Helper()
	res, err := x.draw(key, "expired", 10*time.Millisecond, n)
	if err != nil || !res.OK {
		x.Fatalf("%v = %+v, %v; want it granted", n, res, err)
	}
	l := life{latest: time.Now().Add(10 * time.Millisecond)}
	x.eventually("the value is gone", l, func() bool {
		_, _, ok := x.outside.Get(key)
		return !ok
	})
	return res.Fence
}

// queuedByNumber is the harness of a store with queues whose SetNXQueued is the SetNXNumbered of
// the store of h.
func queuedByNumber(h NumberedHarness) QueuedHarness {
	return QueuedHarness{
		Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, Beside: h.Beside,
		New: func(t *testing.T) (backends.QueuedStore, Outside) {
			store, outside := h.New(t)
			return numberedQueue{store.(backends.QueuedStore), store}, outside
		},
	}
}

type numberedQueue struct {
	backends.QueuedStore
	numbers backends.NumberedStore
}

func (s numberedQueue) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	res, err := s.numbers.SetNXNumbered(ctx, key, value, ttl, t)
	res.Fence = 0 // a store without numbers has none
	return res, err
}

// numbered is the harness of a plain store whose SetNX is the numbered grant of the store of h.
func numbered[S backends.Store](h HarnessFor[S, Outside], n numbering) Harness {
	return Harness{
		Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, Beside: h.Beside,
		New: func(t *testing.T) (backends.Store, Outside) {
			store, outside := h.New(t)
			return numberedStore{store, n}, outside
		},
	}
}

type numberedStore struct {
	backends.Store
	numbering numbering
}

func (s numberedStore) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	res, err := draw(ctx, s.Store, key, value, ttl, s.numbering)
	res.Fence = 0 // a plain store has none
	return res, err
}
