package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
)

const waitsForItself = `lockstep: lock "key": ctx descends from a hold of this key by the same Client, so Lock would wait for itself; ` +
	`use that hold, or package reentrant with ContextWithOwner`

// mustBeDeadlock checks that err says that a Lock would wait for itself.
func mustBeDeadlock(t *testing.T, way string, err error) {
	t.Helper()
	var permanent interface{ Permanent() bool }
	var failed *locker.Error
	switch {
	case err == nil || err.Error() != waitsForItself:
		t.Errorf("%s: error %v; want %s", way, err, waitsForItself)
	case !errors.As(err, &permanent) || !permanent.Permanent() || errors.Is(err, locker.ErrHeld):
		t.Errorf("%s: the error is not permanent, or matches ErrHeld", way)
	case !errors.As(err, &failed) || failed.ErrorType() != "deadlock":
		t.Errorf("%s: its type is %q", way, failed.ErrorType())
	}
}

func TestALockThatWouldWaitForItselfFailsBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		// WithMaxHold ends the test if the Lock waits after all
		l := mustLock(t, c, "key", locker.WithMaxHold(time.Hour))
		inner, err := c.Lock(l.Context(), "another key")
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(l.Context(), time.Minute)
		defer cancel()
		asked, _, _, watches := s.asked()
		for way, ctx := range map[string]context.Context{
			"below the hold": l.Context(), "below a hold below it": inner.Context(),
			"with a limit": limited, "with a value": locker.ContextWithOwner(l.Context(), ""),
		} {
			_, err := c.Lock(ctx, "key")
			mustBeDeadlock(t, way, err)
			_, err = c.Lock(ctx, "key", locker.WithWait(time.Second))
			mustBeDeadlock(t, way+", WithWait", err)
			err = c.Do(ctx, "key", func(context.Context, *locker.Lock) error { return nil })
			mustBeDeadlock(t, way+", Do", err)
		}
		if nowAsked, _, _, nowWatches := s.asked(); nowAsked != asked || nowWatches != watches {
			t.Errorf("%d attempts and %d watches were sent", nowAsked-asked, nowWatches-watches)
		}
		mustUnlock(t, inner)
		mustUnlock(t, l)
	})
}

// mustGet is for a Lock in a goroutine of its own.
func mustGet(l *locker.Lock, err error) *locker.Lock {
	if err != nil {
		panic(err)
	}
	return l
}

func TestALockThatOnlySeemsToWaitForItselfWaits(t *testing.T) {
	// detached has the values of the hold, and an end of its own.
	detached := func(t *testing.T, l *locker.Lock) context.Context {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), time.Minute)
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("TryLock does not wait", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			_, err := c.TryLock(l.Context(), "key")
			mustMatch(t, err, locker.ErrHeld)
			mustUnlock(t, l)
		})
	})
	t.Run("another Client is another holder", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			_, err := locker.New(s).Lock(l.Context(), "key", locker.WithWait(time.Second))
			mustMatch(t, err, locker.ErrHeld, locker.ErrWaitLimit)
			mustUnlock(t, l)
		})
	})
	t.Run("an owner may be granted the lock again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locker.New(reentrant.New(memory.New()))
			ctx, cancel := context.WithCancel(locker.ContextWithOwner(t.Context(), "job"))
			defer cancel()
			err := c.Do(ctx, "key", func(ctx context.Context, _ *locker.Lock) error {
				return c.Do(ctx, "key", func(context.Context, *locker.Lock) error { return nil })
			})
			if err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("a ctx that nothing ends waits for the hold to end", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			next := make(chan *locker.Lock)
			go func() { next <- mustGet(c.Lock(context.WithoutCancel(l.Context()), "key")) }()
			time.Sleep(time.Second)
			mustUnlock(t, l)
			mustUnlock(t, <-next)
		})
	})
	t.Run("the hold was unlocked", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			ctx := detached(t, l)
			_, err := c.Lock(ctx, "key")
			mustBeDeadlock(t, "while it lasts", err)
			mustUnlock(t, l)
			mustUnlock(t, mustGet(c.Lock(ctx, "key")))
			_, err = c.Lock(l.Context(), "key")
			mustMatch(t, err, context.Canceled, locker.ErrReleased)
			_, err = c.Lock(l.Context(), "inner")
			mustMatch(t, err, context.Canceled, locker.ErrReleased)
			if want := `lockstep: lock "inner": context canceled: lock "key" released`; err.Error() != want {
				t.Errorf("Lock = %v; want %s", err, want)
			}
		})
	})
	t.Run("the hold was lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key", locker.WithoutExtension())
			ctx := detached(t, l)
			<-l.Context().Done()
			mustUnlock(t, mustGet(c.Lock(ctx, "key")))
			mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		})
	})
	t.Run("the hold was handed over", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			ctx := detached(t, l)
			second := take(t, c, "key")
			mustUnlock(t, l)
			next := <-second
			third := make(chan *locker.Lock)
			go func() { third <- mustGet(c.Lock(ctx, "key")) }()
			time.Sleep(time.Second)
			mustUnlock(t, next)
			mustUnlock(t, <-third)
		}, locker.WithHandover(100))
	})
}
