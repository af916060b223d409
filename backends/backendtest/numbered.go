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
	},
}

// queuedByNumber is the harness of the store with queues that asks for a number where SetNXQueued
// is asked for.
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
	res.Fence = 0 // of which a store that does not number knows nothing
	return res, err
}

// askNumber calls SetNXNumbered for a waiter, with a value of the waiter's.
func (x *fixture) askNumber(w *waiter, t backends.Turn) backends.Result {
	x.Helper()
	t.Waiter = w.name
	res, err := x.numbers.SetNXNumbered(x.Context(), w.key, w.value(), x.long, t)
	if err != nil {
		x.Fatalf("SetNXNumbered(%.60q) for a waiter: %v", w.key, err)
	}
	return res
}

// takeNumber calls SetNXNumbered for a waiter, which must be granted with a number greater than last.
func (x *fixture) takeNumber(w *waiter, last uint64) uint64 {
	x.Helper()
	res := x.askNumber(w, backends.Turn{})
	if !res.OK || res.Fence <= last || res.Position != 0 {
		x.Fatalf("SetNXNumbered(%.60q) for the head of the queue = %+v; want it granted, and a number over %d", w.key, res, last)
	}
	return res.Fence
}

var numberedTurnSentences = []sentence{
	{"a number is greater after each hand-over of a reservation", func(x *fixture) {
		key := x.key("k")
		last := x.next(key, "before", byClock, 0)
		line := x.line(key, 3)
		x.pass(key, "before")
		for _, w := range line {
			x.wantTurn(w)
			last = x.takeNumber(w, last)
			x.remove(key, w.value())
		}
		x.next(key, "mine", byClock, last)
	}},
	{"a number is greater after a hand-over to a grant without a number", func(x *fixture) {
		key := x.key("k")
		last := x.next(key, "before", byClock, 0)
		line := x.line(key, 2)
		x.pass(key, "before")
		x.wantTurn(line[0])
		x.take(line[0])
		x.remove(key, line[0].value())
		x.wantTurn(line[1])
		x.takeNumber(line[1], last)
	}},
	{"waiters of SetNXNumbered and SetNXQueued stand in one queue", func(x *fixture) {
		x.inTime("a reservation for each waiter", func(key string) bool {
			x.next(key, "before", byClock, 0)
			line := make([]*waiter, 4)
			for i := range line {
				line[i] = x.comes(key)
				res := x.ask(line[i], false)
				if i%2 == 1 {
					res = x.askNumber(line[i], backends.Turn{})
				}
				if res.OK || res.Position != i+1 || res.Fence != 0 {
					x.Fatalf("attempt of waiter %d = %+v; want it refused, position %d, and no number", i+1, res, i+1)
				}
			}
			value := "before"
			for i, w := range line {
				l := x.pass(key, value)
				x.wantTurn(w)
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
	{"a reservation has no number, and SetNXNumbered for others is refused", func(x *fixture) {
		x.inTime("a reservation", func(key string) bool {
			last := x.next(key, "before", byClock, 0)
			w := x.line(key, 1)[0]
			l := x.pass(key, "before")
			x.wantTurn(w)
			res, err := x.numbers.SetNXNumbered(x.Context(), key, "mine", x.long, backends.Turn{})
			if !x.lasts(l) {
				return false
			}
			if err != nil || res.OK || res.Fence != 0 {
				x.Fatalf("SetNXNumbered of a key that is reserved for another = %+v, %v; want it refused", res, err)
			}
			x.takeNumber(w, last)
			return true
		})
	}},
	{"a repeated SetNXNumbered for a waiter has the number that it had", func(x *fixture) {
		key := x.key("k")
		last := x.next(key, "before", byClock, 0)
		w := x.line(key, 1)[0]
		x.pass(key, "before")
		x.wantTurn(w)
		number := x.takeNumber(w, last)
		for i := range rounds {
			time.Sleep(2 * x.Resolution)
			for _, t := range []backends.Turn{{}, {InOrder: true}, {Free: true}} {
				if res := x.askNumber(w, t); !res.OK || res.Fence != number {
					x.Fatalf("SetNXNumbered(%+v), sent %d times = %+v; want the number %d", t, i+2, res, number)
				}
			}
		}
	}},
	{"in order, SetNXNumbered of a free key is for the head of the queue", func(x *fixture) {
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
				x.Fatalf("SetNXNumbered in order for the second = %+v; want it refused", res)
			}
			x.wantTurn(line[0])
			if res := x.askNumber(line[0], backends.Turn{InOrder: true}); !res.OK || res.Fence == 0 {
				x.Fatalf("SetNXNumbered in order for the head = %+v; want it granted and numbered", res)
			}
			return true
		})
	}},
	{"of concurrent numbered grants to waiters each has a greater number than the one before", func(x *fixture) {
		key := x.key("k")
		numbers := make(chan uint64, callers*rounds)
		together(callers, func(i int) {
			for round := range rounds {
				w := x.comes(key)
				res := x.askNumber(w, backends.Turn{})
				for ; !res.OK; res = x.askNumber(w, backends.Turn{}) {
					x.wantTurn(w)
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
				x.Fatalf("after the number %d came %d", last, n)
			}
			last = n
		}
	}},
}
