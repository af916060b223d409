package legacy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Each of these tests produces a violation that the comment of Expire describes.

func TestAnomalyExpireKilledBetween(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)
		dies(t, backendtest.Expire, store, legacy.Expire)
		if left, found, err := store.Left(t.Context(), "key"); !found || left != 0 || err != nil {
			t.Fatalf("what is left lives for %v, found %v, %v; want it for ever", left, found, err)
		}
		// single does not touch it.
		if held := wantHeld(t, "single", single.New(s), brief); !held.Foreign {
			t.Errorf("single: %v, want it to be foreign", held)
		}
		// A waiter of the recipe gives the value an expiry, and so gets the lock.
		began := time.Now()
		wantHeld(t, "the repairer", legacy.Expire(store), brief)
		if left, _, err := store.Left(t.Context(), "key"); left > brief+time.Millisecond || err != nil { // a store for Redis adds a ms
			t.Errorf("repaired, it lives for %v more, %v; want %v at most", left, err, brief)
		}
		gets(t, "the next", legacy.Expire(store), long)
		if took := time.Since(began); took < brief {
			t.Errorf("granted after %v, before the repair had expired", took)
		}
	})
}

func TestAnomalyExpireKilledBetweenLocksForEver(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		dies(t, backendtest.Expire, plain(s), legacy.Expire)
		const aYear = 365 * 24 * time.Hour
		time.Sleep(aYear)
		_, err := locker.New(single.New(s)).Lock(t.Context(), "key", locker.WithWait(time.Minute))
		if !errors.Is(err, locker.ErrWaitLimit) || !errors.Is(err, locker.ErrForeignKey) {
			t.Fatalf("after a year: Lock = %v", err)
		}
	})
}

func TestAnomalyExpireRepairHitsALivingLock(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)

		// Alice has set the key, which has no expiry yet. Bob sees that, and is about to repair it.
		alicesPause := pauseBefore(backendtest.Expire, store)
		alice := getting(t, "alice", legacy.Expire(alicesPause), long)
		<-alicesPause.arrived
		bobsPause := pauseBefore(backendtest.Expire, store)
		bob := asks(t, legacy.Expire(bobsPause), brief)
		<-bobsPause.arrived

		// Alice sets the expiry and has the lock for ten minutes; then Bob's repair arrives.
		close(alicesPause.released)
		hers := <-alice
		if err := bobsPause.goOn(bob); !errors.Is(err, locker.ErrHeld) {
			t.Fatalf("bob: Acquire = %v", err)
		}
		carol := gets(t, "carol", legacy.Expire(store), long)
		allHold(t, hers, carol)
	})
}
