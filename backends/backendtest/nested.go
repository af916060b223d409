package backendtest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

var ofNested = suite[backends.NestedStore, NestedOutside]{
	sentences: func(h NestedHarness) []sentence {
		return slices.Concat(
			enterSentences,
			renewSentences,
			leaveSentences,
			nestedRefusalSentences,
			nestedByteSentences,
			nestedConcurrencySentences,
			nestedWatching(h.NoWatch),
		)
	},
	give: func(x *fixture, store backends.NestedStore, outside NestedOutside) {
		x.nested, x.store, x.setNested = store, soleHolds{store}, outside.SetNested
	},
}

// nestedWatching is what Watch of any store must do, where a lock is one hold.
func nestedWatching(not bool) []sentence {
	sentences := slices.Clone(watching(not))
	for i := range sentences {
		sentences[i].says = ofHolds(sentences[i].says)
	}
	if not {
		return sentences
	}
	return append(sentences, sentence{"Leave of one of two holds wakes nobody, Leave of the last wakes", func(x *fixture) {
		key, other := x.key("k"), x.key("other")
		told, flushed := x.watch(x.Context(), key), x.watch(x.Context(), other)
		for range 20 { // since a wake may come for nothing
			x.enter(key, "ann", "one", x.long, 1)
			x.enter(key, "ann", "two", x.long, 2)
			before := told.count.Load()
			x.leave(key, "one")
			x.release(other, flushed) // so that a wake would have come by now
			quiet := told.count.Load() == before
			x.leave(key, "two")
			x.wantWake(told)
			if quiet {
				return
			}
		}
		x.Fatalf("Leave of a hold wakes, though another remains")
	}})
}

func ofHolds(says string) string { return strings.ReplaceAll(says, "DeleteIf", "Leave") }

// soleHolds is a store of values that are holds of nobody.
type soleHolds struct{ backends.NestedStore }

func (s soleHolds) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return s.Enter(ctx, key, "", value, ttl)
}

func (s soleHolds) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return s.Renew(ctx, key, value, ttl)
}

func (s soleHolds) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	return s.Leave(ctx, key, value)
}

// enter calls Enter, which must be granted, with so many holds; 0: any.
func (x *fixture) enter(key, owner, token string, ttl time.Duration, holds int) life {
	x.Helper()
	began := time.Now()
	res, err := x.nested.Enter(x.Context(), key, owner, token, ttl)
	if err != nil || !res.OK {
		x.Fatalf("Enter(%.60q, %.60q, %.60q, %v) = %+v, %v; want it granted", key, owner, token, ttl, res, err)
	}
	if res.Holds != holds && holds != 0 {
		x.Fatalf("Enter(%.60q, %.60q, %.60q, %v) makes it %d holds; want %d", key, owner, token, ttl, res.Holds, holds)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// enterNot calls Enter, which must be refused because of holds, the last of which has that life.
func (x *fixture) enterNot(key, owner, token string, ttl time.Duration, l life) {
	x.Helper()
	began := time.Now()
	res, err := x.nested.Enter(x.Context(), key, owner, token, ttl)
	ended := time.Now()
	switch {
	case err != nil || res.OK || res.Foreign || res.Holds != 0:
		x.Fatalf("Enter(%.60q, %.60q, %.60q, %v) = %+v, %v; want it refused", key, owner, token, ttl, res, err)
	case x.NoLeft && res.Left != 0:
		x.Errorf("Enter says that %v are left; the harness says that it cannot know", res.Left)
	case !x.NoLeft:
		x.within(l, "Enter", res.Left, began, ended)
	}
}

// renew calls Renew, which must be granted.
func (x *fixture) renew(key, token string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	if ok, err := x.nested.Renew(x.Context(), key, token, ttl); err != nil || !ok {
		x.Fatalf("Renew(%.60q, %.60q, %v) = %v, %v; want true", key, token, ttl, ok, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// renewNot calls Renew, which must find that the hold is not there.
func (x *fixture) renewNot(key, token string, ttl time.Duration) {
	x.Helper()
	if ok, err := x.nested.Renew(x.Context(), key, token, ttl); err != nil || ok {
		x.Fatalf("Renew(%.60q, %.60q, %v) = %v, %v; want false", key, token, ttl, ok, err)
	}
}

// leave calls Leave, which must be granted.
func (x *fixture) leave(key, token string) {
	x.Helper()
	if ok, err := x.nested.Leave(x.Context(), key, token); err != nil || !ok {
		x.Fatalf("Leave(%.60q, %.60q) = %v, %v; want true", key, token, ok, err)
	}
}

// leaveNot calls Leave, which must find that the hold is not there.
func (x *fixture) leaveNot(key, token string) {
	x.Helper()
	if ok, err := x.nested.Leave(x.Context(), key, token); err != nil || ok {
		x.Fatalf("Leave(%.60q, %.60q) = %v, %v; want false", key, token, ok, err)
	}
}

// wantLife checks from outside that key is held, and how long.
func (x *fixture) wantLife(key string, l life) {
	x.Helper()
	began := time.Now()
	_, left, ok := x.outside.Get(key)
	ended := time.Now()
	if !ok {
		x.Fatalf("%.60q is free; want it held", key)
	}
	x.within(l, "the key", left, began, ended)
}

// holdsBecome waits for the end of the hold that has that life, by entering again as one that remains.
func (x *fixture) holdsBecome(key, owner, token string, want int, ending life) {
	x.Helper()
	x.eventually("the hold has ended", ending, func() bool {
		res, err := x.nested.Enter(x.Context(), key, owner, token, x.long)
		if ended := time.Now(); err != nil || !res.OK || res.Holds <= want && ended.Before(ending.earliest) {
			x.Fatalf("Enter = %+v, %v; %v before the end of a hold", res, err, ending.earliest.Sub(ended))
		}
		return res.Holds == want
	})
}

// endOf waits until key is free since its hold has ended.
func (x *fixture) endOf(key string, l life) {
	x.Helper()
	x.eventually("the hold has ended", l, func() bool {
		_, _, ok := x.outside.Get(key)
		return !ok
	})
}

// outOfLimits checks that call, which changes the life of the hold "one" or adds another, is refused for a bad ttl.
func (x *fixture) outOfLimits(name string, call func(key string, ttl time.Duration) error) {
	x.Helper()
	key := x.key("k")
	for _, ttl := range []time.Duration{x.MaxTTL + time.Millisecond, time.Millisecond - 1, 0, -x.long} {
		l := x.enter(key, "ann", "one", x.long, 1)
		err := call(key, ttl)
		if err == nil {
			x.Fatalf("%s with a ttl of %v: no error", name, ttl)
		}
		x.wantPermanent(name, err)
		if ttl > x.MaxTTL && !strings.Contains(err.Error(), x.MaxTTL.String()) {
			x.Errorf("error %q does not name the limit as %v", err, x.MaxTTL)
		}
		x.wantLife(key, l)
		x.leave(key, "one")
		x.wantNothing(key)
	}
}
