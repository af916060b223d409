package single_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// reusing is a mutant. It gives all attempts the same Token, like a library with one token per lock
// object.
type reusing struct{ locker.Locker }

func (r reusing) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	req.Token = "one for all"
	return r.Locker.Acquire(ctx, req)
}

// TestADelayedCleanUpOfOneAttemptCannotRemoveTheGrantOfTheNext also runs with a mutant, to show
// that the run can end with two holders.
func TestADelayedCleanUpOfOneAttemptCannotRemoveTheGrantOfTheNext(t *testing.T) {
	for name, mutate := range map[string]func(locker.Locker) locker.Locker{
		"as it is":        func(l locker.Locker) locker.Locker { return l },
		"reusing a token": func(l locker.Locker) locker.Locker { return reusing{l} },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			faults := new(backendtest.Faults)
			locks := locker.New(mutate(single.New(faults.Store(store))), locker.WithoutRenewal())

			// The reply to the first attempt is lost, and its cleanup is slow.
			faults.Once(backendtest.SetNX, backendtest.LoseReply)
			faults.Once(backendtest.DeleteIf, backendtest.Late(time.Second))
			if _, err := locks.Lock(t.Context(), "key"); err == nil || errors.Is(err, locker.ErrHeld) {
				t.Fatalf("%s: Lock = %v", name, err)
			}
			// The caller tries again. The mutant takes the token of the first attempt for its own;
			// without the mutant it is the token of another holder.
			first, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatalf("%s: Lock = %v", name, err)
			}
			time.Sleep(5 * time.Second) // by now all cleanups are done
			second, err := locker.New(single.New(store)).TryLock(t.Context(), "key")
			switch name {
			case "as it is":
				if !errors.Is(err, locker.ErrHeld) {
					t.Errorf("%s: a second holder beside the first: %v", name, err)
				}
				if err := first.Unlock(t.Context()); err != nil {
					t.Errorf("%s: Unlock = %v", name, err)
				}
			default:
				if err != nil || first.Context().Err() != nil {
					t.Fatalf("%s: two holders were to be expected: %v", name, err)
				}
				if err := second.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				_ = first.Unlock(t.Context()) // lost, as the test has shown
			}
		})
	}
}

func TestAGrantWhoseReplyComesAfterItsOwnEndIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		faults := new(backendtest.Faults)
		faults.Set(backendtest.SetNX, func(ctx context.Context, execute func(context.Context) error) error {
			err := execute(ctx)
			time.Sleep(995 * time.Millisecond) // shorter than the life in the store, longer than the lease for the holder
			return err
		})
		_, err := single.New(faults.Store(store)).Acquire(t.Context(), contract.Request{Key: "key", Token: contract.NewToken(), TTL: time.Second})
		if err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Acquire = %v", err)
		}
		synctest.Wait()
		if _, _, ok := store.Get("key"); ok {
			t.Error("the key is still there")
		}
	})
}
