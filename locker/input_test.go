package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

func TestBadInputIsAnErrorThatSaysWhatToDo(t *testing.T) {
	var (
		zero  locker.Client
		none  *locker.Client
		noCtx context.Context
		s     = newSpy()
		good  = locker.New(s)
		sleep = locker.WithBackoff(func(int, float64) time.Duration { return time.Second })
		wraps = func(locker.Locker) locker.Locker { return nil }
	)
	work := func(context.Context, *locker.Lock) error {
		t.Error("the work was called")
		return nil
	}
	lock := func(c *locker.Client, opts ...locker.Option) error {
		_, err := c.Lock(t.Context(), "key", opts...)
		return err
	}
	tryLock := func(c *locker.Client, opts ...locker.Option) error {
		_, err := c.TryLock(t.Context(), "key", opts...)
		return err
	}
	ofNoCtx := func(_ *locker.Lock, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{ofNoCtx(good.Lock(noCtx, "key")), "ctx is nil; use context.Background()"},
		{ofNoCtx(good.TryLock(noCtx, "key")), "ctx is nil; use context.Background()"},
		{good.Do(noCtx, "key", work), "ctx is nil; use context.Background()"},
		{lock(&zero), "the Client was not made by locker.New"},
		{tryLock(&zero), "the Client was not made by locker.New"},
		{zero.Do(t.Context(), "key", work), "the Client was not made by locker.New"},
		{lock(none), "the Client was not made by locker.New"},
		{tryLock(none), "the Client was not made by locker.New"},
		{none.Do(t.Context(), "key", work), "the Client was not made by locker.New"},
		{lock(locker.New(nil)), "locker is nil"},
		{lock(locker.New(s, locker.WithMiddleware(nil))), "middleware is nil"},
		{lock(locker.New(s, locker.WithMiddleware(wraps))), "middleware returned a nil Locker"},
		{lock(locker.New(s, nil)), "option is nil"},
		{lock(good, nil), "option is nil"},
		{good.Do(t.Context(), "key", nil), "work is nil"},
		{tryLock(good, locker.WithWait(time.Second)), "locker.WithWait is for Lock; TryLock and Resume do not wait"},
		{tryLock(good, locker.WithAttempts(1)), "locker.WithAttempts is for Lock; TryLock and Resume do not wait"},
		{tryLock(good, sleep), "locker.WithBackoff is for Lock; TryLock and Resume do not wait"},
		{lock(good, locker.WithMiddleware()), "locker.WithMiddleware is for locker.New, not for one call"},
		{lock(good, locker.WithHandover(1)), "locker.WithHandover is for locker.New, not for one call"},
		{lock(locker.New(s, locker.WithHandover(0))), "0 handovers: at least one is needed"},
	} {
		if want := `lockstep: lock "key": ` + c.want; c.err == nil || c.err.Error() != want {
			t.Errorf("got  %v\nwant %s", c.err, want)
		} else if kind := (&locker.Error{Err: c.err}).ErrorType(); kind != "invalid" {
			t.Errorf("%v: its type is %q", c.err, kind)
		}
	}
	if acquires, _, _, _ := s.asked(); acquires != 0 {
		t.Errorf("%d attempts were sent", acquires)
	}
	// Options of New about waiting are for Lock. TryLock ignores them.
	l, err := locker.New(s, locker.WithWait(time.Second), locker.WithAttempts(3), sleep).TryLock(t.Context(), "key", locker.WithTTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	mustUnlock(t, l)
}

// Unlock with a nil ctx is bad input, but it must not leave the lock locked.
func TestUnlockWithANilCtxReleasesAndSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var none context.Context
		l := mustLock(t, c, "key")
		for op, err := range map[string]error{
			"extend": l.Extend(none, time.Minute),
			"drain":  c.Drain(none),
		} {
			want := `lockstep: ` + op + ` "key": ctx is nil; use context.Background()`
			if op == "drain" {
				want = `lockstep: drain: ctx is nil; use context.Background()`
			}
			if err == nil || err.Error() != want {
				t.Errorf("%v; want %s", err, want)
			}
		}
		if err := l.Unlock(none); err == nil || err.Error() != `lockstep: release "key": ctx is nil; use context.Background()` {
			t.Errorf("Unlock = %v", err)
		}
		s.mustBeFree(t, "key")
	})
}

func TestUnlockOfALostLockWithANilCtxReportsTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var none context.Context
		l := mustLock(t, c, "key", locker.WithTTL(time.Second), locker.WithoutExtension())
		<-l.Context().Done()
		mustMatch(t, l.Unlock(none), locker.ErrLost)
	})
}

func TestDrainOfANilClientIsAnError(t *testing.T) {
	var none *locker.Client
	const want = "lockstep: drain: the Client was not made by locker.New"
	if err := none.Drain(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Drain = %v; want %s", err, want)
	}
}
