package backendtest

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A fixture is what one sentence works with: the store, the Outside, and the checks.
type fixture struct {
	reporter
	Harness // with the defaults filled in

	store   backends.Store
	outside Outside
	id      string        // makes keys unique on a server that others use too
	long    time.Duration // a ttl that does not end during a test

	// the store by its other interfaces, for the sentences about them
	queued    backends.QueuedStore
	fenced    backends.FencedStore
	numbers   backends.NumberedStore
	shared    backends.SharedStore
	queue     queue // of a QueuedStore or an OrderedStore
	setShared func(key string)
	legacy    backends.LegacyStore
	inspector backends.Inspector
	lister    backends.Lister  // nil: the store does not list
	evictor   backends.Evictor // nil: the store does not evict
	transfers backends.TransferStore
	// nil: the store moves no holds
	holdTransfers backends.SharedTransferStore
	guarded       GuardedStore // nil: the store has no guard

	numberings []numbering // the ways in which the store numbers
}

// queue is what stores with a queue have in common.
type queue interface {
	WatchQueued(ctx context.Context, key, waiter string, wake func()) error
}

// reporter is what a sentence needs of a *testing.T. The tests of this package use another one, to
// check that a sentence fails for a store that breaks it.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
	Cleanup(func())
}

func (c suite[S, O]) fixture(t *testing.T, r reporter, h HarnessFor[S, O]) *fixture {
	x := &fixture{reporter: r, id: rand.Text(), Harness: Harness{
		Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, NoQueue: h.NoQueue, Clock: h.Clock, NoLast: h.NoLast, Beside: h.Beside,
	}}
	if x.MaxTTL == 0 {
		x.MaxTTL = backends.DefaultMaxTTL
	}
	if x.Resolution == 0 {
		x.Resolution = time.Millisecond
	}
	if x.Beside == nil {
		x.Beside = func(string) []string { return nil }
	}
	x.long = x.MaxTTL / 3
	store, outside := h.New(t)
	x.outside = outside
	c.give(x, store, outside)
	return x
}

// key returns a key that no other sentence uses, and deletes it at the end of the sentence. name is
// its beginning and its end, because a store is most likely to misread text there.
func (x *fixture) key(name string) string {
	return x.own(name + x.id + name)
}

func (x *fixture) own(key string) string {
	x.Cleanup(func() {
		x.outside.Delete(key)
		for _, beside := range x.Beside(key) {
			x.outside.Delete(beside)
		}
	})
	return key
}

// A life says when a value must end: not before earliest, and soon after latest.
type life struct{ earliest, latest time.Time }

// grant calls SetNX, which must be granted.
func (x *fixture) grant(key, value string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	res, err := x.store.SetNX(x.Context(), key, value, ttl)
	if err != nil || !res.OK {
		x.Fatalf("SetNX(%.60q, %.60q, %v) = %+v, %v; want it granted", key, value, ttl, res, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// wantHeld calls SetNX, which must find the key held by a value with the life l.
func (x *fixture) wantHeld(key, value string, ttl time.Duration, l life) {
	x.Helper()
	began := time.Now()
	res, err := x.store.SetNX(x.Context(), key, value, ttl)
	ended := time.Now()
	switch {
	case err != nil || res.OK || res.Foreign:
		x.Fatalf("SetNX(%.60q, %.60q, %v) = %+v, %v; want it held", key, value, ttl, res, err)
	case x.NoLeft && res.Left != 0:
		x.Errorf("SetNX: %v left; want 0, because of NoLeft", res.Left)
	case !x.NoLeft:
		x.within(l, "SetNX", res.Left, began, ended)
	}
}

// extend calls ExpireIf, which must find value.
func (x *fixture) extend(key, value string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	ok, err := x.store.ExpireIf(x.Context(), key, value, ttl)
	if err != nil || !ok {
		x.Fatalf("ExpireIf(%.60q, %.60q, %v) = %v, %v; want true", key, value, ttl, ok, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// extendNot calls ExpireIf, which must not find value.
func (x *fixture) extendNot(key, value string, ttl time.Duration) {
	x.Helper()
	if ok, err := x.store.ExpireIf(x.Context(), key, value, ttl); err != nil || ok {
		x.Fatalf("ExpireIf(%.60q, %.60q, %v) = %v, %v; want false", key, value, ttl, ok, err)
	}
}

// remove calls DeleteIf, which must find value.
func (x *fixture) remove(key, value string) {
	x.Helper()
	if ok, err := x.store.DeleteIf(x.Context(), key, value); err != nil || !ok {
		x.Fatalf("DeleteIf(%.60q, %.60q) = %v, %v; want true", key, value, ok, err)
	}
}

// removeNot calls DeleteIf, which must not find value.
func (x *fixture) removeNot(key, value string) {
	x.Helper()
	if ok, err := x.store.DeleteIf(x.Context(), key, value); err != nil || ok {
		x.Fatalf("DeleteIf(%.60q, %.60q) = %v, %v; want false", key, value, ok, err)
	}
}

// wantPermanent checks that err is permanent.
func (x *fixture) wantPermanent(call string, err error) {
	x.Helper()
	if !backends.Permanent(err) {
		x.Fatalf("%s: error %v; want one with a method Permanent that returns true", call, err)
	}
}

// wantValue checks from outside that key holds value with the life l.
func (x *fixture) wantValue(key, value string, l life) {
	x.Helper()
	began := time.Now()
	got, left, ok := x.outside.Get(key)
	ended := time.Now()
	if !ok || got != value {
		x.Fatalf("%.60q holds %.60q, %v; want %.60q", key, got, ok, value)
	}
	x.within(l, "the value", left, began, ended)
}

// wantForever checks from outside that key holds value without expiry.
func (x *fixture) wantForever(key, value string) {
	x.Helper()
	if got, left, ok := x.outside.Get(key); !ok || got != value || left != 0 {
		x.Fatalf("%.60q holds %.60q, %v, with %v left; want %.60q without expiry", key, got, ok, left, value)
	}
}

// wantNothing checks from outside that key holds nothing.
func (x *fixture) wantNothing(key string) {
	x.Helper()
	if got, left, ok := x.outside.Get(key); ok {
		x.Fatalf("%.60q holds %.60q, with %v left; want nothing", key, got, left)
	}
}

// within checks a remaining life that was read between began and ended.
func (x *fixture) within(l life, what string, left time.Duration, began, ended time.Time) {
	x.Helper()
	least, most := l.earliest.Sub(ended)-x.tolerance(), l.latest.Sub(began)+x.tolerance()
	if left <= 0 || left < least || left > most {
		x.Errorf("%s has %v left; want at least %v and at most %v", what, left, least, most)
	}
}

// tolerance is one Resolution for the rounding of the end of a value, and one for the rounding of
// its remaining life.
func (x *fixture) tolerance() time.Duration { return 2 * x.Resolution }

// eventually polls until done returns true, soon after the end of l at the latest.
func (x *fixture) eventually(what string, l life, done func() bool) {
	x.Helper()
	limit := l.latest.Add(x.tolerance())
	if !x.Bubble {
		limit = limit.Add(patience)
	}
	for !done() {
		if time.Now().After(limit) {
			x.Fatalf("%s: not by %v after the ttl", what, time.Since(l.latest))
		}
		time.Sleep(tick)
	}
}

const (
	patience = 20 * time.Second       // for a busy machine
	tick     = 200 * time.Microsecond // between polls: less than a millisecond, to see roundings
)

// unhurried is a ctx for a call that would be given up early without a deadline.
func (x *fixture) unhurried() (context.Context, context.CancelFunc) {
	return context.WithTimeout(x.Context(), 6*patience)
}

// together runs do n times at the same time.
func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			do(i)
		})
	}
	close(start)
	wg.Wait()
}
