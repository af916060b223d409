package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// The work of Do has the context of the lock, and may call Extend with it or with a ctx below it.
func TestAnExtensionUnderTheLocksOwnContextEndsWithTheHold(t *testing.T) {
	type key struct{}
	below := map[string]func(ctx context.Context) context.Context{
		"itself":     func(ctx context.Context) context.Context { return ctx },
		"with value": func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, 1) },
	}
	for name, under := range below {
		t.Run(name+", unlocked", func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				s.onExtend = hangs
				l := mustLock(t, c, "key", locker.WithTTL(10*time.Second))
				extended := make(chan error, 1)
				go func() { extended <- l.Extend(under(l.Context()), 20*time.Second) }()
				synctest.Wait()
				mustUnlock(t, l)
				if err := <-extended; err == nil {
					t.Error("Extend = nil")
				}
			})
		})
		t.Run(name+", lost", func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				s.onExtend = hangs
				l := mustLock(t, c, "key", locker.WithTTL(time.Second), locker.WithoutRenewal())
				go func() { _ = l.Extend(under(l.Context()), 20*time.Second) }()
				time.Sleep(2 * time.Second)
				other := mustLock(t, c, "other", locker.WithTTL(time.Second), locker.WithoutRenewal())
				<-other.Context().Done() // the scheduler still works
				mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
			})
		})
	}
}

func hangs(ctx context.Context, _ func() (contract.Lease, error)) (contract.Lease, error) {
	<-ctx.Done()
	return contract.Lease{}, ctx.Err()
}

func TestAnExtensionWhoseLockerEndsTheGoroutineHasFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			runtime.Goexit()
			return contract.Lease{}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := l.Extend(ctx, 20*time.Second); err == nil {
			t.Error("Extend = nil")
		}
		mustUnlock(t, l)
	})
}

type byHand struct{}

// Eight extensions by hand, the maximum, are under way when the renewal has room at last.
func TestALockInTheBacklogIsRenewedThoughItIsAlsoExtendedByHand(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		until := time.Now().Add(14 * time.Second)
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if ctx.Value(byHand{}) != nil {
				<-ctx.Done()
				return contract.Lease{}, ctx.Err()
			}
			time.Sleep(time.Until(until)) // and ignores its ctx
			return next()
		}
		var held []*locker.Lock
		for i := range 256 {
			held = append(held, mustLock(t, c, fmt.Sprint(i), locker.WithTTL(30*time.Second)))
		}
		time.Sleep(time.Second)
		l := mustLock(t, c, "key", locker.WithTTL(30*time.Second))
		time.Sleep(12 * time.Second)
		for range 8 {
			go func() {
				ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), byHand{}, true), 3*time.Second)
				defer cancel()
				if err := l.Extend(ctx, 30*time.Second); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Extend by hand = %v", err)
				}
			}()
		}
		time.Sleep(time.Minute)
		if err := context.Cause(l.Context()); err != nil {
			t.Error(err)
		}
		for _, l := range append(held, l) {
			_ = l.Unlock(t.Context())
		}
	})
}

// The renewal waits for room when an extension by hand is answered.
func TestALockInTheBacklogThatIsExtendedByHandIsScheduledOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if ctx.Value(byHand{}) == nil {
				<-ctx.Done()
				return contract.Lease{}, ctx.Err()
			}
			return next()
		}
		var held []*locker.Lock
		for i := range 256 {
			held = append(held, mustLock(t, c, fmt.Sprint(i), locker.WithTTL(30*time.Second)))
		}
		time.Sleep(time.Second)
		l := mustLock(t, c, "key", locker.WithTTL(30*time.Second))
		time.Sleep(11 * time.Second)
		if err := l.Extend(context.WithValue(t.Context(), byHand{}, true), time.Minute); err != nil {
			t.Error(err)
		}
		if n := c.Scheduled(); n != len(held)+1 {
			t.Errorf("%d entries in the scheduler for %d locks", n, len(held)+1)
		}
		for _, l := range append(held, l) {
			_ = l.Unlock(t.Context())
		}
	})
}

// As many renewals are under way as may be, and others wait for room.
func TestAnExtensionByHandMakesNoRoomForARenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var renewals atomic.Int64
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if ctx.Value(byHand{}) == nil {
				renewals.Add(1)
				<-ctx.Done()
				return contract.Lease{}, ctx.Err()
			}
			return next()
		}
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute))
		var held []*locker.Lock
		for i := range 300 {
			held = append(held, mustLock(t, c, fmt.Sprint(i), locker.WithTTL(30*time.Second)))
		}
		time.Sleep(12 * time.Second)
		for range 10 {
			if err := l.Extend(context.WithValue(t.Context(), byHand{}, true), time.Minute); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := renewals.Load(); n != 256 {
			t.Errorf("%d renewals are under way; want 256", n)
		}
		for _, l := range append(held, l) {
			_ = l.Unlock(t.Context())
		}
	})
}

// asked is a ctx that calls tell at the next call of Err.
type asked struct {
	context.Context
	tell atomic.Pointer[func()]
}

func (a *asked) Err() error {
	if tell := a.tell.Swap(nil); tell != nil {
		(*tell)()
	}
	return a.Context.Err()
}

// The scheduler looks at two locks, then renews both. Between the two looks the first lock is
// extended by hand.
func TestAnExtensionByHandDuringALookReplacesTheRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		first := mustLock(t, c, "first", locker.WithTTL(3*time.Second))
		ctx := &asked{Context: t.Context()}
		second, err := c.Lock(ctx, "second", locker.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		byHand := func() {
			if err := first.Extend(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
		}
		ctx.tell.Store(&byHand)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if _, extends, _, _ := s.asked(); extends != 2 {
			t.Errorf("%d extensions; want the one by hand, and the renewal of the other lock", extends)
		}
		mustUnlock(t, first)
		mustUnlock(t, second)
	})
}

func TestLocksLostAtOnceAreCleanedUpAFewAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onExtend = hangs
		s.onRelease = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		before := goroutines()
		for i := range 2000 {
			mustLock(t, c, fmt.Sprint(i), locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		}
		time.Sleep(3500 * time.Millisecond)
		if n := goroutines() - before; n > 200 {
			t.Errorf("%d goroutines for 2000 lost locks; want 200 at most", n)
		}
		time.Sleep(4 * time.Second) // until the cleanups have ended
	})
}
