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
	"github.com/lockstep-go/lockstep/strategies/single"
)

// reusing is a mutant: it gives all attempts the same Token, as a library does that draws one per lock object.
type reusing struct{ locker.Locker }

func (r reusing) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	req.Token = "one for all"
	return r.Locker.Acquire(ctx, req)
}

// TestADelayedCleanUpOfOneAttemptCannotRemoveTheGrantOfTheNext plays it with a mutant, too, to show that the play can
// end with two holders.
func TestADelayedCleanUpOfOneAttemptCannotRemoveTheGrantOfTheNext(t *testing.T) {
	for name, mutate := range map[string]func(locker.Locker) locker.Locker{
		"as it is":        func(l locker.Locker) locker.Locker { return l },
		"reusing a token": func(l locker.Locker) locker.Locker { return reusing{l} },
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			faulty := backendtest.Faulty(store)
			locks := locker.New(mutate(single.New(faulty)), locker.WithoutExtension())

			// The reply to the first attempt gets lost, and its clean-up is slow.
			faulty.Once(backendtest.SetNX, backendtest.LoseReply)
			faulty.Once(backendtest.DeleteIf, backendtest.Late(time.Second))
			if _, err := locks.Lock(t.Context(), "key"); err == nil || errors.Is(err, locker.ErrHeld) {
				t.Fatalf("%s: Lock = %v", name, err)
			}
			// The caller tries again. What the first attempt left is ours to the mutant, and someone's otherwise.
			first, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatalf("%s: Lock = %v", name, err)
			}
			time.Sleep(5 * time.Second) // by now all clean-up is over
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
				_ = first.Unlock(t.Context()) // lost, as was to be shown
			}
		})
	}
}

func TestAGrantWhoseReplyComesAfterItsOwnEndIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		faulty := backendtest.Faulty(store)
		faulty.Set(backendtest.SetNX, func(ctx context.Context, execute func(context.Context) error) error {
			err := execute(ctx)
			time.Sleep(995 * time.Millisecond) // less than the store keeps it, more than the holder may believe
			return err
		})
		_, err := single.New(faulty).Acquire(t.Context(), locker.Request{Key: "key", Token: locker.NewToken(), TTL: time.Second})
		if err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Acquire = %v", err)
		}
		synctest.Wait()
		if _, _, ok := store.Get("key"); ok {
			t.Error("the key is still there")
		}
	})
}
