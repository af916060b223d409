package legacy_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// Each of these tests produces a violation that the comment of GetSet describes.

// getSet is the recipe in milliseconds, so that tests need not wait for seconds.
func getSet(store backends.LegacyStore, opts ...legacy.GetSetOption) locker.Locker {
	return legacy.GetSet(store, append(opts, legacy.InMilliseconds())...)
}

// ahead is a wall clock that is wrong.
func ahead(by time.Duration) legacy.GetSetOption {
	return legacy.WithClock(func() time.Time { return time.Now().Add(by) })
}

func TestAnomalyGetSetClockAhead(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)
		alice := gets(t, "alice", getSet(store), long)
		wantHeld(t, "bob, whose clock is right,", getSet(store), long)

		carol := gets(t, "carol, whose clock is ahead", getSet(store, ahead(long+time.Second)), long)
		allHold(t, alice, carol)
	})
}

func TestAnomalyGetSetLoserWithShorterTimeout(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)
		leaveStaleStamp(t, store)

		// Bob finds the stamp past, and so does Alice. Alice is quicker: her GETSET finds it still
		// past, and she has the lock.
		pause := pauseBefore(backendtest.GetSet, store)
		bob := asks(t, getSet(pause), brief)
		<-pause.arrived
		alice := gets(t, "alice", getSet(store), long)

		// Bob's GETSET finds the stamp of Alice, so he has lost. But now his stamp is under the
		// key.
		if err := pause.goOn(bob); !errors.Is(err, locker.ErrHeld) {
			t.Fatalf("bob: Acquire = %v", err)
		}
		carol := gets(t, "carol", getSet(store), long)
		allHold(t, alice, carol)

		// The holder learns of it at its extension.
		if err := alice.lock.Extend(t.Context(), long); !errors.Is(err, locker.ErrLost) {
			t.Errorf("alice: Extend = %v", err)
		}
		if err := carol.lock.Unlock(t.Context()); err != nil {
			t.Errorf("carol: Unlock = %v", err)
		}
	})
}

// leaveStaleStamp leaves the stamp of a holder that died an hour ago.
func leaveStaleStamp(t *testing.T, store backends.LegacyStore) {
	t.Helper()
	past := strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)
	if set, err := store.SetNXForever(t.Context(), "key", past); err != nil || !set {
		t.Fatalf("SETNX = %v, %v", set, err)
	}
}

func TestAnomalyGetSetEqualStamps(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, outside beneath.Outside) {
		store := plain(s)
		now := time.Now()
		sameSecond := legacy.WithClock(func() time.Time { return now })

		alice := gets(t, "alice", legacy.GetSet(store, sameSecond), long)
		outside.Delete("key") // the server has forgotten it
		bob := gets(t, "bob", legacy.GetSet(store, sameSecond), long)
		if err := alice.lock.Extend(t.Context(), long); err != nil {
			t.Fatalf("alice, who has lost the lock: Extend = %v", err)
		}
		if err := bob.lock.Extend(t.Context(), long); err != nil {
			t.Fatalf("bob: Extend = %v", err)
		}
		allHold(t, alice, bob)
	})
}

func TestAnomalyGetSetReleasesWhatItFinds(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, outside beneath.Outside) {
		store := plain(s)
		alice := gets(t, "alice", getSet(store), long)
		outside.Delete("key")
		bob := gets(t, "bob", getSet(store), long/2)
		if err := alice.lock.Unlock(t.Context()); err != nil {
			t.Fatalf("alice: Unlock = %v", err)
		}
		carol := gets(t, "carol", getSet(store), long)
		allHold(t, bob, carol)
	})
}
