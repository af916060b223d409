package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
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
		{lock(locker.New(s, locker.WithMaxHandovers(0))), "0 handovers: at least one is needed"},
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
		l := mustLock(t, c, "key", locker.WithTTL(time.Second), locker.WithoutRenewal())
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

// A hook of a hold may wait for what the program has under way. It does not wait for itself.
func TestDrainInAHookReturns(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s *spy, l *locker.Lock){
		"released": func(t *testing.T, _ *spy, l *locker.Lock) { mustUnlock(t, l) },
		"lost": func(t *testing.T, s *spy, l *locker.Lock) {
			s.store.Delete("key")
			<-l.Context().Done()
		},
		"lost, and unlocked": func(t *testing.T, s *spy, l *locker.Lock) {
			s.store.Delete("key")
			mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy()
				var c *locker.Client
				drained := make(chan error, 2)
				drain := func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					drained <- c.Drain(ctx)
				}
				c = locker.New(s, locker.WithMiddleware(func(next locker.Locker) locker.Locker {
					return observing{next, func(context.Context, contract.Lease) (context.Context, func(time.Time, error)) {
						drain()
						return nil, func(time.Time, error) { drain() }
					}}
				}))
				end(t, s, mustLock(t, c, "key"))
				for _, hook := range []string{"begin", "end"} {
					if err := <-drained; err != nil {
						t.Errorf("Drain in the hook of the %s = %v", hook, err)
					}
				}
			})
		})
	}
}

// A Lock that no Client has made is bad input, and no panic.
func TestTheZeroLockHoldsNothingAndSaysSo(t *testing.T) {
	for name, l := range map[string]*locker.Lock{"zero": new(locker.Lock), "nil": nil} {
		ctx := l.Context()
		if _, ok := ctx.Deadline(); ok || ctx.Err() == nil || ctx.Value("key") != nil {
			t.Errorf("%s: its context is %v", name, ctx.Err())
		}
		select {
		case <-ctx.Done():
		default:
			t.Errorf("%s: its context has not ended", name)
		}
		if key, fence, lease := l.Key(), l.Fence(), l.Lease(); key != "" || fence != 0 || lease.Token != "" {
			t.Errorf("%s: key %q, number %d, %v", name, key, fence, lease)
		}
		for _, shown := range []string{l.String(), l.GoString(), fmt.Sprintf("%v %+v %#v %d", l, l, l, l), l.LogValue().String(), fmt.Sprint(ctx)} {
			if strings.Contains(shown, "PANIC") || shown == "" {
				t.Errorf("%s: it is shown as %q", name, shown)
			}
		}
		_, transfer := l.Transfer(t.Context(), time.Second)
		for op, err := range map[string]error{
			"release": l.Unlock(t.Context()), "extend": l.Extend(t.Context(), time.Second), "transfer": transfer, "cause": context.Cause(ctx),
		} {
			var typed interface {
				Permanent() bool
				ErrorType() string
			}
			if !errors.As(err, &typed) || !typed.Permanent() || (&locker.Error{Err: err}).ErrorType() != "invalid" || errors.Is(err, locker.ErrReleased) || errors.Is(err, locker.ErrLost) {
				t.Errorf("%s: %s says %v; want bad input", name, op, err)
			}
		}
	}
}
