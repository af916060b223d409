package legacy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/legacy"
)

// TestAnAttemptThatWasLeftDoesNotFreeTheHolder: the Client cleans up after an attempt whose ctx
// ends. For a bit that could turn off the bit of another holder.
func TestAnAttemptThatWasLeftDoesNotFreeTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		grant(t, legacy.SetBit(store.Legacy()), long)
		faults := new(backendtest.Faults)
		release := make(chan struct{})
		faults.Set(backendtest.SetBit, backendtest.Stall(release, nil))
		ctx, cancel := context.WithTimeout(t.Context(), brief)
		defer cancel()
		if _, err := locker.New(legacy.SetBit(faults.Legacy(store.Legacy()))).Lock(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock = %v", err)
		}
		time.Sleep(time.Second) // the Client cleans up meanwhile
		close(release)
		synctest.Wait()
		wantHeld(t, "another", legacy.SetBit(store.Legacy()), long)
	})
}

// TestAFailedAttemptDoesNotFreeTheHolder, since nobody knows whose bit it is.
func TestAFailedAttemptDoesNotFreeTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		grant(t, legacy.SetBit(store.Legacy()), long)
		faults := new(backendtest.Faults)
		faults.Once(backendtest.SetBit, backendtest.LoseReply)
		if _, err := locker.New(legacy.SetBit(faults.Legacy(store.Legacy()))).Lock(t.Context(), "key"); err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Lock = %v", err)
		}
		time.Sleep(time.Minute)
		wantHeld(t, "another", legacy.SetBit(store.Legacy()), long)
	})
}

// TestAGrantThatComesLateIsReleased by the Client that has left the attempt. The recipe itself
// would not know whose bit it is.
func TestAGrantThatComesLateIsReleased(t *testing.T) {
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := inMemory()
				faults := new(backendtest.Faults)
				faults.Set(backendtest.SetNXForever, backendtest.Late(time.Second))
				faults.Once(backendtest.SetBit, backendtest.Late(time.Second))
				ctx, cancel := context.WithTimeout(t.Context(), brief)
				defer cancel()
				_, err := locker.New(r.new(faults.Legacy(store.Legacy())), locker.WithTTL(long)).Lock(ctx, "key")
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Lock = %v", err)
				}
				time.Sleep(10 * time.Second)
				gets(t, "another", r.new(store.Legacy()), long)
				if n := faults.Calls(backendtest.SetNXForever) + faults.Calls(backendtest.SetBit); n == 0 {
					t.Error("nothing was granted")
				}
			})
		})
	}
}

func TestALeaseThatRunsOutInALivingProcessIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		l := legacy.SetBit(store.Legacy())
		lost := gets(t, "alice", l, time.Second).lock
		<-lost.Context().Done()
		gets(t, "bob", legacy.SetBit(store.Legacy()), long)
		synctest.Wait()
		if n := legacy.Remembers(l); n != 0 {
			t.Errorf("%d grants are remembered", n)
		}
	})
}

// TestAGrantThatComesAfterItsOwnEndIsReleasedOnce: the second try finds the bit off, which is
// enough.
func TestAGrantThatComesAfterItsOwnEndIsReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		faults := new(backendtest.Faults)
		faults.Once(backendtest.SetBit, backendtest.Late(2*time.Second), backendtest.LoseReply)
		l := legacy.SetBit(faults.Legacy(store.Legacy()))
		if lease, err := l.Acquire(t.Context(), request(time.Second)); err == nil {
			t.Errorf("granted %v after its end", lease)
		}
		time.Sleep(time.Second)
		grant(t, legacy.SetBit(store.Legacy()), long)
		time.Sleep(time.Minute)
		if n := faults.Calls(backendtest.SetBit); n != 3 {
			t.Errorf("SETBIT was sent %d times; want 3: on, off, and off again", n)
		}
		wantHeld(t, "another", legacy.SetBit(store.Legacy()), long)
	})
}
