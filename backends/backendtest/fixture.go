package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A fixture is what one sentence works with.
type fixture struct {
	reporter
	Harness // with the defaults filled in

	store   backends.Store
	outside Outside
	id      string        // makes keys unique on a server that others use too
	long    time.Duration // a ttl that does not end during a test

	// what else the store is, for the sentences about that
	queued    backends.QueuedStore
	fenced    backends.FencedStore
	numbers   backends.NumberedStore
	nested    backends.NestedStore
	setNested func(key string)
	legacy    backends.LegacyStore

	numberings []numbering // that it can be asked for
}

// reporter is what a sentence needs of a *testing.T. This package's own tests put something else in its place, to see
// that sentences fail for stores that break them.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
	Cleanup(func())
}

func (c suite[S, O]) fixture(t *testing.T, r reporter, h HarnessFor[S, O]) *fixture {
	x := &fixture{reporter: r, id: rand.Text(), Harness: Harness{
		Bubble: h.Bubble, MaxTTL: h.MaxTTL, Resolution: h.Resolution, NoWatch: h.NoWatch, NoLeft: h.NoLeft, Clock: h.Clock, Beside: h.Beside,
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

// key returns a key that no other sentence uses and that is deleted when the sentence is done. name comes first and
// last in it, where it is most likely to be mistaken for something else.
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

// A life says when a value must end, as well as the test can know: not before earliest, and soon after latest.
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

// refuse calls SetNX, which must be refused because of a value with that life.
func (x *fixture) refuse(key, value string, ttl time.Duration, l life) {
	x.Helper()
	began := time.Now()
	res, err := x.store.SetNX(x.Context(), key, value, ttl)
	ended := time.Now()
	switch {
	case err != nil || res.OK || res.Foreign:
		x.Fatalf("SetNX(%.60q, %.60q, %v) = %+v, %v; want it refused", key, value, ttl, res, err)
	case x.NoLeft && res.Left != 0:
		x.Errorf("SetNX says that %v are left; the harness says that it cannot know", res.Left)
	case !x.NoLeft:
		x.within(l, "SetNX", res.Left, began, ended)
	}
}

// extend calls ExpireIf, which must be granted.
func (x *fixture) extend(key, value string, ttl time.Duration) life {
	x.Helper()
	began := time.Now()
	ok, err := x.store.ExpireIf(x.Context(), key, value, ttl)
	if err != nil || !ok {
		x.Fatalf("ExpireIf(%.60q, %.60q, %v) = %v, %v; want true", key, value, ttl, ok, err)
	}
	return life{began.Add(ttl), time.Now().Add(ttl)}
}

// extendNot calls ExpireIf, which must find that the value is not there.
func (x *fixture) extendNot(key, value string, ttl time.Duration) {
	x.Helper()
	if ok, err := x.store.ExpireIf(x.Context(), key, value, ttl); err != nil || ok {
		x.Fatalf("ExpireIf(%.60q, %.60q, %v) = %v, %v; want false", key, value, ttl, ok, err)
	}
}

// remove calls DeleteIf, which must be granted.
func (x *fixture) remove(key, value string) {
	x.Helper()
	if ok, err := x.store.DeleteIf(x.Context(), key, value); err != nil || !ok {
		x.Fatalf("DeleteIf(%.60q, %.60q) = %v, %v; want true", key, value, ok, err)
	}
}

// removeNot calls DeleteIf, which must find that the value is not there.
func (x *fixture) removeNot(key, value string) {
	x.Helper()
	if ok, err := x.store.DeleteIf(x.Context(), key, value); err != nil || ok {
		x.Fatalf("DeleteIf(%.60q, %.60q) = %v, %v; want false", key, value, ok, err)
	}
}

// wantPermanent checks an error that says that nothing was done.
func (x *fixture) wantPermanent(call string, err error) {
	x.Helper()
	var p interface{ Permanent() bool }
	if !errors.As(err, &p) || !p.Permanent() {
		x.Fatalf("%s: error %v; want one with a method Permanent that returns true", call, err)
	}
}

// wantValue checks from outside that key holds value and that it has that life.
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

// within checks a time left that was read between began and ended.
func (x *fixture) within(l life, who string, left time.Duration, began, ended time.Time) {
	x.Helper()
	least, most := l.earliest.Sub(ended)-x.tolerance(), l.latest.Sub(began)+x.tolerance()
	if left <= 0 || left < least || left > most {
		x.Errorf("%s has %v left; want at least %v and at most %v", who, left, least, most)
	}
}

// tolerance is one Resolution for the rounding of the end of a value and one for that of the time left.
func (x *fixture) tolerance() time.Duration { return 2 * x.Resolution }

// eventually polls until done says so, which it must soon after the end of l.
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
	patience = 20 * time.Second       // with a machine that has much else to do
	tick     = 200 * time.Microsecond // between polls, and a fraction of a millisecond in order to see roundings
)

// together runs do n times at once.
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
