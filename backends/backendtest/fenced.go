package backendtest

import (
	"context"
	"slices"
	"testing"
	"time"

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
	},
}

// numbering is how a store is asked for a number.
type numbering int

const (
	byCount numbering = iota + 1 // SetNXFenced
	byClock                      // SetNXNumbered
)

func (n numbering) String() string {
	return map[numbering]string{byCount: "SetNXFenced", byClock: "SetNXNumbered"}[n]
}

// draw asks the store for a numbered grant. The caller does not wait in a queue.
func draw(ctx context.Context, store backends.Store, key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
	if n == byCount {
		return store.(backends.FencedStore).SetNXFenced(ctx, key, value, ttl)
	}
	return store.(backends.NumberedStore).SetNXNumbered(ctx, key, value, ttl, backends.Turn{})
}

// numbered is the harness of the plain store that asks for a number where SetNX is asked for.
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
	res.Fence = 0 // of which a plain store knows nothing
	return res, err
}

// both makes a sentence about every numbering of the store.
func both(holds func(x *fixture, n numbering)) func(x *fixture) {
	return func(x *fixture) {
		for _, n := range x.numberings {
			holds(x, n)
		}
	}
}

// draw asks for a grant with a number.
func (x *fixture) draw(key, value string, ttl time.Duration, n numbering) (backends.Result, error) {
	return draw(x.Context(), x.store, key, value, ttl, n)
}

// next asks for a number, which must be granted with a number greater than last.
func (x *fixture) next(key, value string, n numbering, last uint64) uint64 {
	x.Helper()
	res, err := x.draw(key, value, x.long, n)
	if err != nil || !res.OK || res.Fence <= last {
		x.Fatalf("%v(%.60q, %.60q, %v) = %+v, %v; want it granted, and a number over %d",
			n, key, value, x.long, res, err, last)
	}
	return res.Fence
}

// numbered asks for a number, which must be that one.
func (x *fixture) numbered(key, value string, n numbering, want uint64) {
	x.Helper()
	if got := x.next(key, value, n, 0); got != want {
		x.Fatalf("%v(%.60q, %.60q, %v) gave the number %d; want %d", n, key, value, x.long, got, want)
	}
}

// raise calls RaiseFence, which must land or not.
func (x *fixture) raise(key, value string, to uint64, want bool) {
	x.Helper()
	if landed, err := x.fenced.RaiseFence(x.Context(), key, value, to); err != nil || landed != want {
		x.Fatalf("RaiseFence(%.60q, %.60q, %d) = %v, %v; want %v", key, value, to, landed, err, want)
	}
}

// ahead leaves key free, with a number that so far ahead of the time.
func (x *fixture) ahead(key string, by time.Duration) uint64 {
	x.Helper()
	to := x.next(key, "ahead", byClock, 0) + uint64(by/time.Microsecond)
	x.raise(key, "ahead", to, true)
	x.remove(key, "ahead")
	return to
}

// expired returns the number of a grant to "expired" that has expired.
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
