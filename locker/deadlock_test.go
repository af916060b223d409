package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
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

func TestALockBelowAHoldThatAdmitsNoOtherFails(t *testing.T) {
	owners := func(names ...string) []string { return names }
	for name, c := range map[string]struct {
		locker func(*memory.Store) locker.Locker
		owners []string // of the holds, the outermost first, and of the Lock below them
		fails  bool
	}{
		"single, with an owner":                 {onSingle, owners("job", "job"), true},
		"single, of another owner":              {onSingle, owners("job", "another job"), true},
		"fenced, with an owner":                 {onFenced, owners("job", "job"), true},
		"reentrant, the same owner":             {onReentrant, owners("job", "job"), false},
		"reentrant, the same owner, third":      {onReentrant, owners("job", "job", "job"), false},
		"reentrant, another owner":              {onReentrant, owners("job", "another job"), true},
		"reentrant, no owner below one":         {onReentrant, owners("job", ""), true},
		"reentrant, an owner below none":        {onReentrant, owners("", "job"), true},
		"reentrant, no owner":                   {onReentrant, owners("", ""), true},
		"a semaphore with a permit left":        {onSemaphore, owners("", ""), false},
		"a semaphore without a permit left":     {onSemaphore, owners("", "", ""), true},
		"a semaphore without a permit, owners":  {onSemaphore, owners("job", "job", "job"), true},
		"a reader below a reader":               {onReaders, owners("", ""), false},
		"a reader below one with another owner": {onReaders, owners("job", "another job"), false},
		"a writer below a writer":               {onWriters, owners("job", "job"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := locker.New(c.locker(memory.New()))
				ctx, end := context.WithCancel(t.Context())
				last := len(c.owners) - 1
				for _, owner := range c.owners[:last] {
					l, err := client.Lock(locker.ContextWithOwner(ctx, owner), "key")
					if err != nil {
						t.Fatal(err)
					}
					defer mustUnlock(t, l)
					ctx = l.Context()
				}
				began := time.Now()
				time.AfterFunc(time.Hour, end) // if it waits for itself
				l, err := client.Lock(locker.ContextWithOwner(ctx, c.owners[last]), "key")
				switch {
				case time.Since(began) > 0:
					t.Errorf("Lock has waited for itself: %v", err)
				case c.fails:
					mustBeDeadlock(t, "Lock", err)
				case err != nil:
					t.Errorf("Lock = %v; want it granted", err)
				default:
					mustUnlock(t, l)
				}
			})
		})
	}
}

func onSingle(s *memory.Store) locker.Locker    { return single.New(s) }
func onFenced(s *memory.Store) locker.Locker    { return fenced.New(s) }
func onReentrant(s *memory.Store) locker.Locker { return reentrant.New(s) }
func onSemaphore(s *memory.Store) locker.Locker { return semaphore.New(s, 2) }
func onReaders(s *memory.Store) locker.Locker   { return rwlock.New(s).Readers() }
func onWriters(s *memory.Store) locker.Locker   { return rwlock.New(s).Writers() }

// A permit that another holder has may become free, so the Lock waits for it.
func TestALockBelowAHoldWaitsForAPermitOfSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c := locker.New(semaphore.New(store, 2))
		other := mustLock(t, locker.New(semaphore.New(store, 2)), "key")
		mine := mustLock(t, c, "key")
		next := make(chan *locker.Lock)
		go func() { next <- mustGet(c.Lock(mine.Context(), "key")) }()
		time.Sleep(time.Second)
		mustUnlock(t, other)
		mustUnlock(t, <-next)
		mustUnlock(t, mine)
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
			l := mustLock(t, c, "key", locker.WithoutRenewal())
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
		}, locker.WithMaxHandovers(100))
	})
}
