package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
)

func TestWhatOneKindHoldsIsAnotherTypeToTheOthers(t *testing.T) {
	s, ctx := memory.New(), t.Context()
	mustHold := func(res backends.Result, err error) {
		t.Helper()
		if err != nil || !res.OK {
			t.Fatalf("%+v, %v; want it granted", res, err)
		}
	}
	mustHold(s.SetNX(ctx, "value", "v", 20*time.Second))
	mustHold(s.SetNXFenced(ctx, "numbered", "v", 20*time.Second))
	mustHold(s.Enter(ctx, "shared", "v", 20*time.Second, backends.Admission{}))
	if _, err := s.Legacy().SetBit(ctx, "bits", 0, true); err != nil {
		t.Fatal(err)
	}

	for _, key := range []string{"value", "numbered", "bits"} {
		if _, err := s.Enter(ctx, key, "v", 20*time.Second, backends.Admission{}); !errors.Is(err, backends.ErrWrongType) {
			t.Errorf("Enter of %q: error %v", key, err)
		}
		if _, found, err := s.Legacy().Get(ctx, key); err != nil || !found {
			t.Errorf("Get of %q: %v, %v; it is a text like any other", key, found, err)
		}
	}
	for call, err := range map[string]error{
		"SetNX":    func() error { _, err := s.SetNX(ctx, "shared", "v", 20*time.Second); return err }(),
		"ExpireIf": func() error { _, err := s.ExpireIf(ctx, "shared", "v", 20*time.Second); return err }(),
		"DeleteIf": func() error { _, err := s.DeleteIf(ctx, "shared", ""); return err }(),
		"SetNXFenced": func() error {
			_, err := s.SetNXNumbered(ctx, "shared", "", 20*time.Second, backends.Turn{})
			return err
		}(),
		"RaiseFence": func() error { _, err := s.RaiseFence(ctx, "shared", "", 1); return err }(),
		"GetSet":     func() error { _, _, err := s.Legacy().GetSet(ctx, "shared", "v"); return err }(),
		"GetBit":     func() error { _, err := s.Legacy().GetBit(ctx, "shared", 0); return err }(),
	} {
		if !errors.Is(err, backends.ErrWrongType) {
			t.Errorf("%s of shared holds: error %v", call, err)
		}
	}
}

func TestEveryStoreIsAServerOfItsOwn(t *testing.T) {
	a, b := memory.New(), memory.New()
	if err := backends.CheckNodes(t.Context(), a, b); err != nil {
		t.Error(err)
	}
	var bad *backends.NodesError
	if err := backends.CheckNodes(t.Context(), a, b, a); !errors.As(err, &bad) || len(bad.Same) != 1 || bad.Same[0] != [2]int{0, 2} {
		t.Errorf("the same store twice: %v", err)
	}
}

func TestClockForgetsACounterAfterItsRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		count := s.SetNXFenced
		clock := func(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
			return s.SetNXNumbered(ctx, key, value, ttl, backends.Turn{})
		}
		grant := func(set func(context.Context, string, string, time.Duration) (backends.Result, error)) uint64 {
			t.Helper()
			res, err := set(t.Context(), "k", "v", time.Second)
			if err != nil || !res.OK {
				t.Fatal(res, err)
			}
			time.Sleep(time.Second)
			return res.Fence
		}
		last := grant(clock)
		time.Sleep(backends.FenceRetention - 2*time.Second)
		if got := grant(count); got != last+1 {
			t.Errorf("a second before the end of its retention Count gave %d; want %d", got, last+1)
		}
		last = grant(clock)
		time.Sleep(backends.FenceRetention - time.Second)
		if got := grant(count); got != 1 {
			t.Errorf("at the end of its retention Count gave %d after %d; want 1", got, last)
		}
	})
}

func TestAKeyThatOutlivesItsHoldsIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		if res, err := s.Enter(t.Context(), "k", "one", time.Second, backends.Admission{Group: "ann"}); err != nil || !res.OK {
			t.Fatal(res, err)
		}
		if found, err := s.Legacy().Expire(t.Context(), "k", 20*time.Second); err != nil || !found {
			t.Fatal(found, err)
		}
		time.Sleep(time.Second)
		if _, left, found := s.Get("k"); !found || left != 19*time.Second {
			t.Errorf("when all holds have ended: found %v, for %v; want 19 s", found, left)
		}
		if res, err := s.Enter(t.Context(), "k", "two", time.Second, backends.Admission{Group: "bob"}); err != nil || !res.OK || res.Holds != 1 {
			t.Errorf("Enter when all holds have ended = %+v, %v", res, err)
		}
	})
}

// TestARefusedEnterLeavesTheExpiryAlone is about a key that an operator has given another life than its
// holds have.
func TestARefusedEnterLeavesTheExpiryAlone(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"a longer life": 20 * time.Second, "a shorter life": 18 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ctx := memory.New(), t.Context()
				for token, ttl := range map[string]time.Duration{"short": 10 * time.Millisecond, "long": 20 * time.Millisecond} {
					if res, err := s.Enter(ctx, "key", token, ttl, backends.Admission{}); err != nil || !res.OK {
						t.Fatalf("Enter = %+v, %v", res, err)
					}
				}
				if ok, err := s.Legacy().Expire(ctx, "key", ttl); err != nil || !ok {
					t.Fatalf("Expire = %v, %v", ok, err)
				}
				time.Sleep(15 * time.Millisecond)
				if res, err := s.Enter(ctx, "key", "other", time.Second, backends.Admission{Limit: 1}); err != nil || res.OK {
					t.Fatalf("Enter = %+v, %v; want it held", res, err)
				}
				if _, left, _ := s.Get("key"); left != ttl-15*time.Millisecond {
					t.Errorf("the key lives for %v; want %v", left, ttl-15*time.Millisecond)
				}
			})
		})
	}
}

func TestACounterRaisedToZeroHasGivenNoNumber(t *testing.T) {
	s := memory.New()
	if res, err := s.SetNX(t.Context(), "k", "v", 20*time.Second); err != nil || !res.OK {
		t.Fatal(res, err)
	}
	if ok, err := s.RaiseFence(t.Context(), "k", "v", 0); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if res, err := s.SetNXFenced(t.Context(), "k", "v", 20*time.Second); err != nil || res.Fence != 1 {
		t.Errorf("SetNXFenced = %+v, %v; want the number 1", res, err)
	}
}

func TestIdentifyUnderACtxThatIsDoneReturnsItsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if id, err := memory.New().Identify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Identify = %+v, %v", id, err)
	}
}
