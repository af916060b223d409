package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
)

// Each hold has its own deadline. These tests check times, so they run in fake time.

func acquire(t *testing.T, l locker.Locker, token string, ttl time.Duration, holds int) contract.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: token, Owner: "job", TTL: ttl})
	if err != nil || lease.Holds != holds {
		t.Fatalf("Acquire of %q = %v, as hold %d; want %d", token, err, lease.Holds, holds)
	}
	return lease
}

func extend(t *testing.T, l locker.Locker, lease contract.Lease, ttl time.Duration) contract.Lease {
	t.Helper()
	lease, err := l.Extend(t.Context(), lease, ttl)
	if err != nil {
		t.Fatalf("Extend of %q = %v", lease.Token, err)
	}
	return lease
}

// wantLost checks that the store rejects an extension and a release of a hold.
func wantLost(t *testing.T, l locker.Locker, lease contract.Lease) {
	t.Helper()
	bare := contract.Lease{Key: lease.Key, Token: lease.Token}
	if _, err := l.Extend(t.Context(), bare, time.Second); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Extend of %q = %v; want ErrLost", lease.Token, err)
	}
	if err := l.Release(t.Context(), bare); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Release of %q = %v; want ErrLost", lease.Token, err)
	}
}

// wantLeft checks the Left that another caller gets. Stores may count in milliseconds, and round
// up.
func wantLeft(t *testing.T, l locker.Locker, want time.Duration) {
	t.Helper()
	_, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: "theirs", Owner: "another job", TTL: time.Second})
	var held *locker.HeldError
	if !errors.As(err, &held) || held.Left < want-time.Millisecond || held.Left > want+time.Millisecond {
		t.Errorf("Acquire by another owner = %v; want it held for %v", err, want)
	}
}

func TestAnInnerHoldNeverShortensAnOuter(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := reentrant.New(store)
		outer := acquire(t, l, "outer", 10*time.Second, 1)
		inner := acquire(t, l, "inner", time.Second, 2)
		wantLeft(t, l, 10*time.Second)
		inner = extend(t, l, inner, 2*time.Second)
		wantLeft(t, l, 10*time.Second)
		if err := l.Release(t.Context(), inner); err != nil {
			t.Errorf("Release = %v", err)
		}
		wantLeft(t, l, 10*time.Second)
		acquire(t, l, "left alone", time.Second, 2)
		time.Sleep(8 * time.Second)
		wantLeft(t, l, 2*time.Second)
		if outer.Ended() {
			t.Error("the outer lease has ended")
		}
		extend(t, l, outer, 10*time.Second)
		wantLeft(t, l, 10*time.Second)
	})
}

func TestAnExtensionOfTheOuterHoldDoesNotProlongAnInner(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := reentrant.New(store)
		outer := acquire(t, l, "outer", time.Second, 1)
		inner := acquire(t, l, "inner", time.Second, 2)
		time.Sleep(900 * time.Millisecond)
		outer = extend(t, l, outer, 10*time.Second)
		wantLeft(t, l, 10*time.Second)
		time.Sleep(110 * time.Millisecond)
		wantLost(t, l, inner)
		next := acquire(t, l, "next", time.Second, 2) // the ended hold does not count
		if err := errors.Join(l.Release(t.Context(), outer), l.Release(t.Context(), next)); err != nil {
			t.Errorf("Release = %v", err)
		}
		acquire(t, l, "theirs", time.Second, 1)
	})
}

func TestAnInnerHoldMayOutliveTheOuter(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := reentrant.New(store)
		outer := acquire(t, l, "outer", time.Second, 1)
		inner := acquire(t, l, "inner", 10*time.Second, 2)
		time.Sleep(1010 * time.Millisecond)
		wantLost(t, l, outer)
		wantLeft(t, l, 8990*time.Millisecond)
		if err := l.Release(t.Context(), inner); err != nil {
			t.Errorf("Release = %v", err)
		}
		acquire(t, l, "next", time.Second, 1)
	})
}

func TestARetransmissionNeverShortensItsHold(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := reentrant.New(store)
		extend(t, l, acquire(t, l, "token", time.Second, 1), 10*time.Second)
		acquire(t, l, "token", time.Second, 1)
		wantLeft(t, l, 10*time.Second)
	})
}

func TestTheLockIsFreeWhenTheLastHoldRunsOut(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
		l := reentrant.New(store)
		acquire(t, l, "first", 3*time.Second, 1)
		acquire(t, l, "second", time.Second, 2)
		acquire(t, l, "third", 2*time.Second, 3)
		time.Sleep(3*time.Second - 10*time.Millisecond)
		wantLeft(t, l, 10*time.Millisecond)
		time.Sleep(11 * time.Millisecond)
		if outside.Holds("key") {
			t.Error("something is left under the key")
		}
		acquire(t, l, "next", time.Second, 1)
	})
}

// The Client renews the outer hold, and the test lets the inner one run out.
func TestAnInnerHoldThatRunsOutIsLostAloneUnderAClient(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		c := locker.New(reentrant.New(store), locker.WithTTL(time.Second))
		job := as(t.Context(), "job")
		outer, inner := lock(job, t, c, 1), lock(job, t, c, 2, locker.WithoutRenewal())
		<-inner.Context().Done()
		var lost *locker.LostError
		if cause := context.Cause(inner.Context()); !errors.As(cause, &lost) || lost.Reason != locker.LostExpired {
			t.Errorf("the inner context ended with %v; want it expired", cause)
		}
		if err := inner.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock of the inner = %v; want ErrLost", err)
		}
		time.Sleep(10 * time.Second)
		if err := context.Cause(outer.Context()); err != nil {
			t.Errorf("the outer context has ended: %v", err)
		}
		wantHeld(as(t.Context(), "another job"), t, c)
		unlock(t, lock(job, t, c, 2), outer)
		unlock(t, lock(as(t.Context(), "another job"), t, c, 1))
	})
}
