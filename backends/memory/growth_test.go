package memory

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

func TestExpiredEntriesDoNotAccumulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		most := 0
		for i := range 100_000 {
			if res, err := s.SetNX(t.Context(), fmt.Sprint(i), "v", time.Second); err != nil || !res.OK {
				t.Fatal(res, err)
			}
			most = max(most, len(s.entries.rows))
			time.Sleep(10 * time.Millisecond) // so that 100 are alive at any time
		}
		if most > 300 {
			t.Errorf("the map held %d entries while 100 were alive", most)
		}
	})
}

func TestCountersOfAClockDoNotAccumulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		most := 0
		for i := range 10_000 {
			if res, err := s.SetNXNumbered(t.Context(), fmt.Sprint(i), "v", time.Second, backends.Turn{}); err != nil || !res.OK {
				t.Fatal(res, err)
			}
			most = max(most, len(s.fences.rows))
			time.Sleep(backends.FenceRetention / 100)
		}
		if most > 300 {
			t.Errorf("the map held %d counters while 100 were in use", most)
		}
	})
}

func TestASweepLeavesTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		s.Set("foreign", "v", 0)
		s.SetOther("list")
		s.Set("long", "v", time.Hour)
		for i := range 10 * minSweep {
			s.Set(fmt.Sprint(i), "v", time.Second)
			time.Sleep(100 * time.Millisecond)
		}
		for _, key := range []string{"foreign", "list", "long"} {
			if _, _, ok := s.Get(key); !ok {
				t.Errorf("%q has been swept", key)
			}
		}
	})
}

func TestEndedWatchesDoNotAccumulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 1000 {
			if err := s.Watch(ctx, fmt.Sprint(i%10), func() {}); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.watches) != 10 {
			t.Fatalf("watches of %d keys; want 10", len(s.watches))
		}
		cancel()
		synctest.Wait()
		if len(s.watches) != 0 {
			t.Errorf("watches of %d keys are left", len(s.watches))
		}
	})
}
