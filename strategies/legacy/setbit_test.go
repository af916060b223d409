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

// TestABitWhoseHoldWasEndedByItsMaximumIsTurnedOffOnce: when Unlock comes or the lease ends, whichever
// is first. A second release would turn off the bit of the next holder.
func TestABitWhoseHoldWasEndedByItsMaximumIsTurnedOffOnce(t *testing.T) {
	const ttl, most = 10 * time.Second, 2 * time.Second
	for name, unlock := range map[string]time.Duration{ // after the grant
		"before the end of the lease": 5 * time.Second, "after it": 15 * time.Second, "never": 0, "at the end": ttl - 102*time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := inMemory()
				c := locker.New(legacy.SetBit(store.Legacy()), locker.WithTTL(ttl), locker.WithMaxHold(most))
				l, err := c.Lock(t.Context(), "key")
				if err != nil {
					t.Fatal(err)
				}
				free := l.Lease().Expires
				if at := l.Lease().Granted.Add(unlock); unlock > 0 {
					time.AfterFunc(time.Until(at), func() {
						if err := l.Unlock(context.Background()); !errors.Is(err, locker.ErrLost) {
							t.Errorf("Unlock = %v", err)
						}
					})
					if at.Before(free) {
						free = at
					}
				}
				next := gets(t, "bob", legacy.SetBit(store.Legacy()), long)
				if late := time.Since(free); late < 0 || late > time.Second { // bob polls
					t.Errorf("bob got the lock %v after it was free", late)
				}
				if err := c.Drain(t.Context()); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				if on, err := store.Legacy().GetBit(t.Context(), "key", 0); !on || err != nil {
					t.Errorf("the bit of bob is %v, %v", on, err)
				}
				if err := next.lock.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestABitIsTurnedOffWhenItsStoreIsBack, also if that is after the end of the lease.
func TestABitIsTurnedOffWhenItsStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory()
		faults := new(backendtest.Faults)
		c := locker.New(legacy.SetBit(faults.Legacy(store.Legacy())), locker.WithTTL(10*time.Second), locker.WithMaxHold(9*time.Second))
		l, err := c.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		<-l.Context().Done()
		faults.Set(backendtest.SetBit, backendtest.Fail)
		if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock = %v", err)
		}
		time.Sleep(5 * time.Second)
		faults.Clear()
		gets(t, "bob", legacy.SetBit(store.Legacy()), long)
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
