package legacy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// Each of these tests produces a violation that the comment of SetBit or of GetBit describes.

func TestAnomalyGetBitRace(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)
		pause := pauseBefore(backendtest.SetBit, store) // Bob has found the bit off
		bob := getting(t, "bob", legacy.GetBit(pause), long)
		<-pause.arrived
		alice := gets(t, "alice", legacy.GetBit(store), long)
		close(pause.released)
		allHold(t, alice, <-bob)
	})
}

func TestSetBitHasNoRace(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)
		pause := pauseBefore(backendtest.SetBit, store)
		bob := asks(t, legacy.SetBit(pause), long)
		<-pause.arrived
		gets(t, "alice", legacy.SetBit(store), long)
		if err := pause.goOn(bob); !errors.Is(err, locker.ErrHeld) {
			t.Fatalf("bob: Acquire = %v", err)
		}
	})
}

func TestAnomalySetBitOwnerDies(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)
		lease, err := legacy.SetBit(store).Acquire(t.Context(), request(time.Second)) // a holder that then dies
		if err != nil {
			t.Fatal(err)
		}
		const aYear = 365 * 24 * time.Hour
		time.Sleep(aYear)
		if !lease.Ended() {
			t.Error("the lease has not ended")
		}
		_, err = locker.New(legacy.SetBit(store)).Lock(t.Context(), "key", locker.WithWait(time.Minute))
		if !errors.Is(err, locker.ErrWaitLimit) || !errors.Is(err, locker.ErrHeld) {
			t.Fatalf("after a year: Lock = %v", err)
		}
	})
}

func TestAnomalySetBitReleasedByAnyone(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, outside beneath.Outside) {
		store := plain(s)
		alice := gets(t, "alice", legacy.SetBit(store), long)
		outside.Delete("key") // Alice seemed dead, and an operator has freed her lock
		bob := gets(t, "bob", legacy.SetBit(store), long)
		if err := alice.lock.Extend(t.Context(), long); err != nil {
			t.Fatalf("alice: Extend = %v", err)
		}
		allHold(t, alice, bob)

		// When Alice is done, she frees Bob's lock.
		if err := alice.lock.Unlock(t.Context()); err != nil {
			t.Fatalf("alice: Unlock = %v", err)
		}
		carol := gets(t, "carol", legacy.SetBit(store), long)
		allHold(t, bob, carol)
	})
}

func TestAnomalySetBitReleaseRepeated(t *testing.T) {
	beneath.Each(t, func(t *testing.T, s beneath.Store, _ beneath.Outside) {
		store := plain(s)
		faults := new(backendtest.Faults)
		alice := gets(t, "alice", legacy.SetBit(faults.Legacy(store)), long)

		// The reply to Alice's release is lost. Before the Client repeats it, Bob takes the lock.
		var bob holder
		faults.Once(backendtest.SetBit, func(ctx context.Context, execute func(context.Context) error) error {
			err := backendtest.LoseReply(ctx, execute)
			bob = gets(t, "bob", legacy.SetBit(store), long)
			return err
		})
		if err := alice.lock.Unlock(t.Context()); err != nil {
			t.Fatalf("alice: Unlock = %v", err)
		}
		carol := gets(t, "carol", legacy.SetBit(store), long)
		allHold(t, bob, carol)
	})
}
