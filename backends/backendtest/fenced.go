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
		return slices.Concat(numberSentences, raiseSentences, fencedKeySentences, fencedConcurrencySentences, fencedDays(h.Bubble))
	},
	give: func(x *fixture, store backends.FencedStore, _ Outside) { x.store, x.fenced = store, store },
}

var numberings = []backends.Numbering{backends.Count, backends.Clock}

func name(n backends.Numbering) string {
	return map[backends.Numbering]string{backends.Count: "Count", backends.Clock: "Clock"}[n]
}

// numbered is the harness of the plain store that calls SetNXFenced where SetNX is asked for.
func numbered(h FencedHarness, n backends.Numbering) Harness {
	return Harness{
		Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, Beside: h.Beside,
		New: func(t *testing.T) (backends.Store, Outside) {
			store, outside := h.New(t)
			return numberedStore{store, n}, outside
		},
	}
}

type numberedStore struct {
	backends.FencedStore
	numbering backends.Numbering
}

func (s numberedStore) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.SetNXFenced(ctx, key, value, ttl, s.numbering)
}

// both makes a sentence about any numbering.
func both(holds func(x *fixture, n backends.Numbering)) func(x *fixture) {
	return func(x *fixture) {
		for _, n := range numberings {
			holds(x, n)
		}
	}
}

// next calls SetNXFenced, which must be granted with a number greater than last.
func (x *fixture) next(key, value string, n backends.Numbering, last uint64) uint64 {
	x.Helper()
	res, err := x.fenced.SetNXFenced(x.Context(), key, value, x.long, n)
	if err != nil || !res.OK || res.Fence <= last {
		x.Fatalf("SetNXFenced(%.60q, %.60q, %v, %s) = %+v, %v; want it granted, and a number over %d",
			key, value, x.long, name(n), res, err, last)
	}
	return res.Fence
}

// numbered calls SetNXFenced, which must be granted with that number.
func (x *fixture) numbered(key, value string, n backends.Numbering, want uint64) {
	x.Helper()
	if got := x.next(key, value, n, 0); got != want {
		x.Fatalf("SetNXFenced(%.60q, %.60q, %v, %s) gave the number %d; want %d", key, value, x.long, name(n), got, want)
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
	to := x.next(key, "ahead", backends.Clock, 0) + uint64(by/time.Microsecond)
	x.raise(key, "ahead", to, true)
	x.remove(key, "ahead")
	return to
}

// expired returns the number of a grant to "expired" that has expired.
func (x *fixture) expired(key string, n backends.Numbering) uint64 {
	x.Helper()
	res, err := x.fenced.SetNXFenced(x.Context(), key, "expired", 10*time.Millisecond, n)
	if err != nil || !res.OK {
		x.Fatalf("SetNXFenced = %+v, %v; want it granted", res, err)
	}
	l := life{latest: time.Now().Add(10 * time.Millisecond)}
	x.eventually("the value is gone", l, func() bool {
		_, _, ok := x.outside.Get(key)
		return !ok
	})
	return res.Fence
}
