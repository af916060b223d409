package memory_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestContract(t *testing.T) {
	inBothTimes(t, "Store", backendtest.Run, backendtest.Harness{},
		func(s *memory.Store) (backends.Store, backendtest.Outside) { return s, s })
	inBothTimes(t, "QueuedStore", backendtest.RunQueued, backendtest.QueuedHarness{},
		func(s *memory.Store) (backends.QueuedStore, backendtest.Outside) { return s, s })
	inBothTimes(t, "NumberedStore", backendtest.RunNumbered, backendtest.NumberedHarness{},
		func(s *memory.Store) (backends.NumberedStore, backendtest.Outside) { return s, s })
	inBothTimes(t, "FencedStore", backendtest.RunFenced, backendtest.FencedHarness{Clock: true},
		func(s *memory.Store) (backends.FencedStore, backendtest.Outside) { return s, s })
	inBothTimes(t, "OrderedStore", backendtest.RunOrdered, backendtest.OrderedHarness{},
		func(s *memory.Store) (backends.OrderedStore, backendtest.SharedOutside) { return s, s })
	inBothTimes(t, "Inspector", backendtest.RunInspector, backendtest.InspectorHarness{},
		func(s *memory.Store) (backendtest.InspectedStore, backendtest.SharedOutside) { return s, s })
	inBothTimes(t, "TransferStore", backendtest.RunTransfer, backendtest.TransferHarness{},
		func(s *memory.Store) (backends.TransferStore, backendtest.SharedOutside) { return s, s })
	inBothTimes(t, "LegacyStore", backendtest.RunLegacy, backendtest.LegacyHarness{},
		func(s *memory.Store) (backends.LegacyStore, backendtest.Outside) { return s.Legacy(), s })
}

// inBothTimes tests a store with a limit of its own in real time, and one as it comes in fake time.
func inBothTimes[S, O any](
	t *testing.T, name string, run func(*testing.T, backendtest.HarnessFor[S, O]), h backendtest.HarnessFor[S, O],
	as func(*memory.Store) (S, O),
) {
	h.MaxTTL = time.Hour
	h.New = func(*testing.T) (S, O) { return as(memory.New(memory.WithMaxTTL(time.Hour))) }
	t.Run(name, func(t *testing.T) { run(t, h) })
	h.MaxTTL, h.Bubble, h.Resolution = 0, true, time.Nanosecond
	h.New = func(*testing.T) (S, O) { return as(memory.New()) }
	t.Run(name+" in fake time", func(t *testing.T) { run(t, h) })
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	s := memory.New()
	s.SetOther("list")
	for _, c := range []struct {
		key  string
		ttl  time.Duration
		want string
	}{
		{"k", 30*time.Second + 1, "ttl 30.000000001s is over the store's limit of 30s (see memory.WithMaxTTL)"},
		{"k", 500 * time.Microsecond, "ttl 500µs is under the store's limit of 1ms"},
		{"list", time.Second, "key holds a value of another type"},
	} {
		if _, err := s.SetNX(t.Context(), c.key, "v", c.ttl); err == nil || err.Error() != c.want {
			t.Errorf("SetNX of %q for %v: error %v; want %s", c.key, c.ttl, err, c.want)
		}
	}
}

func TestValueEndsToTheNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		if res, err := s.SetNX(t.Context(), "k", "v", time.Second); err != nil || !res.OK {
			t.Fatal(res, err)
		}
		time.Sleep(time.Second - 1)
		if res, err := s.SetNX(t.Context(), "k", "w", time.Second); err != nil || res != (backends.Result{Left: 1}) {
			t.Errorf("a nanosecond before the end: %+v, %v", res, err)
		}
		time.Sleep(time.Nanosecond)
		if ok, err := s.ExpireIf(t.Context(), "k", "v", time.Second); err != nil || ok {
			t.Errorf("at the end: %v, %v", ok, err)
		}
		if res, err := s.SetNX(t.Context(), "k", "w", time.Second); err != nil || !res.OK {
			t.Errorf("at the end: %+v, %v", res, err)
		}
	})
}

func TestWakesInOrderAndNotAfterItsEnd(t *testing.T) {
	s := memory.New()
	var woken []int
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 5 {
		watching := t.Context()
		if i == 2 {
			watching = ctx
		}
		if err := s.Watch(watching, "k", func() { woken = append(woken, i) }); err != nil {
			t.Fatal(err)
		}
	}
	s.Set("k", "v", time.Second)
	cancel()
	s.DeleteIf(t.Context(), "k", "v")
	s.Delete("k")
	if want := []int{0, 1, 3, 4, 0, 1, 3, 4}; !slices.Equal(woken, want) {
		t.Errorf("woken: %v; want %v", woken, want)
	}
}

func TestWakeMayCallTheStore(t *testing.T) {
	s := memory.New()
	var res backends.Result
	var err error
	if err := s.Watch(t.Context(), "k", func() { res, err = s.SetNX(t.Context(), "k", "next", time.Second) }); err != nil {
		t.Fatal(err)
	}
	s.Set("k", "v", time.Second)
	if ok, err := s.DeleteIf(t.Context(), "k", "v"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err != nil || !res.OK {
		t.Errorf("SetNX in a wake = %+v, %v", res, err)
	}
}

// A bubble does not end, but panics, while a goroutine remains in it.
func TestNoGoroutineRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		for i := range 100 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i+1)*time.Second)
			defer cancel()
			if err := s.Watch(ctx, "k", func() {}); err != nil {
				t.Fatal(err)
			}
			if res, err := s.SetNX(ctx, fmt.Sprint(i), "v", 20*time.Second); err != nil || !res.OK {
				t.Fatal(res, err)
			}
		}
	})
}

// Benchmarks of what is built on stores are meant to measure that.
func TestGrantAndReleaseDoNotAllocate(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	allocs := testing.AllocsPerRun(1000, func() {
		_, _ = s.SetNX(ctx, "k", "v", 20*time.Second)
		_, _ = s.ExpireIf(ctx, "k", "v", 20*time.Second)
		_, _ = s.DeleteIf(ctx, "k", "v")
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
