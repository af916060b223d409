package locker_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// Events at the same moment, or in a rare order.

func TestAWaiterThatLeavesAsItBecomesTheHeadMakesTheNextOneTheHead(t *testing.T) {
	for range 300 {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			held := mustLock(t, c, "key")
			ctx, cancel := context.WithCancel(t.Context())
			for range 5 {
				go func() {
					if l, err := c.Lock(ctx, "key"); err == nil {
						_ = l.Unlock(t.Context()) // a waiter may be granted the lock before its ctx ends
					}
				}()
				synctest.Wait()
			}
			last := make(chan *locker.Lock)
			go func() { last <- mustLock(t, c, "key") }()
			synctest.Wait()
			cancel() // five leave, and each makes the next one the head
			mustUnlock(t, held)
			mustUnlock(t, <-last)
		})
	}
}

func TestOwnersHaveLinesAndTokensOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Second)
		got := make(chan *locker.Lock)
		for _, owner := range []string{"", "a", "b"} {
			go func() {
				l, err := c.Lock(locker.ContextWithOwner(t.Context(), owner), "key")
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			synctest.Wait()
		}
		if _, _, _, watches := s.asked(); watches != 3 {
			t.Errorf("%d watches for three lines", watches)
		}
		for range 3 {
			mustUnlock(t, <-got)
		}
		seen := map[string]bool{}
		for _, req := range s.acquires {
			if seen[req.Token] {
				t.Errorf("a token is used twice, by owner %q", req.Owner)
			}
			seen[req.Token] = true
		}
	})
}

func TestAnUnlockWakesAWaiterOfTheClientWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onWatch = func(context.Context) error { return nil } // it never wakes a waiter
		held := mustLock(t, c, "key")
		got := make(chan *locker.Lock)
		go func() {
			got <- mustLock(t, c, "key", locker.WithBackoff(func(int, float64) time.Duration { return time.Hour }))
		}()
		time.Sleep(time.Second)
		released := time.Now()
		mustUnlock(t, held)
		l := <-got
		if took := time.Since(released); took != 0 {
			t.Errorf("granted %v after the release; want at once", took)
		}
		mustUnlock(t, l)
	})
}

func TestAWakeUpForAReleaseOfThisClientIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var wakes []func()
		s.onWatching = func(wake func()) { wakes = append(wakes, wake) }
		held := mustLock(t, c, "key")
		got := make(chan *locker.Lock, 2)
		for range 2 {
			go func() { got <- mustLock(t, c, "key") }()
			synctest.Wait()
		}
		mustUnlock(t, held)
		l := <-got
		synctest.Wait()
		before, _, _, _ := s.asked()
		for _, wake := range wakes { // the store reports the release late: the next waiter has the lock already
			wake()
		}
		synctest.Wait()
		if after, _, _, _ := s.asked(); after != before {
			t.Errorf("%d attempts on a lock that this Client holds", after-before)
		}
		mustUnlock(t, l)
		mustUnlock(t, <-got)
	})
}

func TestAWakeUpDuringAnAttemptIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var wake func()
		s.onWatching = func(w func()) { wake = w }
		held := mustLock(t, c, "key")
		waiter := func() *locker.Lock {
			return mustLock(t, c, "key", locker.WithBackoff(func(int, float64) time.Duration { return time.Hour }))
		}
		second, third := make(chan *locker.Lock), make(chan *locker.Lock)
		go func() { second <- waiter() }()
		synctest.Wait()
		go func() { third <- waiter() }()
		synctest.Wait()
		mustUnlock(t, held)
		l := <-second // now the line knows that this Client holds the lock
		s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			s.mu.Lock()
			s.onAcquire = nil
			s.mu.Unlock()
			s.store.Set("key", "other", 2*time.Hour) // another process was faster
			lease, err := next()
			s.store.Delete("key")
			wake() // and has released the lock before this attempt has its answer
			return lease, err
		}
		began := time.Now()
		mustUnlock(t, l)
		l = <-third
		if took := time.Since(began); took > time.Second {
			t.Errorf("granted after %v: the wake-up was lost", took)
		}
		mustUnlock(t, l)
	})
}

func TestAnExtensionThatIsAnsweredAfterASuspendDoesNotRevive(t *testing.T) {
	var clock wallclock.Clock
	bubbleWithAClock(t, &clock, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(30*time.Minute))
		before := l.Lease().Expires
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next()
			clock.Jump(45 * time.Minute) // the machine was suspended before the reply was read
			return lease, err
		}
		_ = l.Extend(t.Context(), time.Hour)
		if !l.Lease().Expires.Equal(before) {
			t.Errorf("Expires moved by %v", l.Lease().Expires.Sub(before))
		}
		if l.Context().Err() == nil {
			t.Error("the context has not ended")
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestExpiresNeverMovesBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute))
		before := l.Lease().Expires
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next()
			lease.Expires = time.Now().Add(time.Second) // a Locker that breaks its promise
			return lease, err
		}
		if err := l.Extend(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if !l.Lease().Expires.Equal(before) {
			t.Errorf("Expires moved by %v", l.Lease().Expires.Sub(before))
		}
		mustUnlock(t, l)
	})
}

func TestAResentReleaseDoesNotDependOnTheCtxOfLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		l, err := c.Lock(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		s.faults.Once(backendtest.DeleteIf, backendtest.Fail, backendtest.Fail)
		mustUnlock(t, l)
		s.mustBeFree(t, "key")
	})
}

func TestTheCtxOfAReleaseEndsAfterThreeSecondsAlthoughDoneIsCalledLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		asked := make(chan error, 1)
		s.faults.Once(backendtest.DeleteIf, func(ctx context.Context, execute func(context.Context) error) error {
			time.Sleep(4 * time.Second) // before the first call of Done
			select {
			case <-ctx.Done():
				asked <- ctx.Err()
			default:
				asked <- errors.New("Done is not closed")
			}
			return backendtest.ErrInjected
		})
		mustUnlock(t, mustLock(t, c, "key"))
		mustMatch(t, <-asked, context.DeadlineExceeded)
	})
}

func TestADelayedExtensionDoesNotLoseALockThatAnotherExtended(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var once atomic.Bool
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if once.CompareAndSwap(false, true) {
				time.Sleep(4 * time.Second) // for instance in a rate limiter; the lease in the request ends meanwhile
			}
			return next()
		}
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		time.Sleep(20 * time.Second)
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		mustUnlock(t, l)
	})
}

func TestAnExtensionThatIsAnsweredAfterTheEndSaysSo(t *testing.T) {
	var clock wallclock.Clock
	bubbleWithAClock(t, &clock, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(30*time.Minute))
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next()
			clock.Jump(45 * time.Minute) // no call has looked at the clocks since
			return lease, err
		}
		mustMatch(t, l.Extend(context.Background(), time.Hour), locker.ErrLost)
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestExtendAfterTheEndOfTheHoldSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		mustUnlock(t, l)
		err := l.Extend(t.Context(), time.Minute)
		mustMatch(t, err, locker.ErrReleased)
		if want := `lockstep: extend "key": lock released`; err.Error() != want {
			t.Errorf("%q; want %q", err, want)
		}
		if _, extends, _, _ := s.asked(); extends != 0 {
			t.Errorf("%d extensions were sent", extends)
		}
	})
}

func TestAShortLeaseIsRenewedBesideALongOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		long := mustLock(t, c, "long", locker.WithTTL(time.Hour))
		time.Sleep(100 * time.Millisecond) // the timer is set for a second from the start
		short := mustLock(t, c, "short", locker.WithTTL(100*time.Millisecond))
		time.Sleep(10 * time.Second)
		if short.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(short.Context()))
		}
		mustUnlock(t, short)
		brief := mustLock(t, c, "brief", locker.WithTTL(100*time.Millisecond), locker.WithoutRenewal())
		<-brief.Context().Done()
		if late := time.Since(brief.Lease().Expires); late != 0 {
			t.Errorf("the context ended %v after the lease", late)
		}
		mustUnlock(t, long)
	})
}

func TestAnAttemptThatIgnoresItsCtxIsCleanedUpBeforeItAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		answer := make(chan struct{})
		s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next() // the store grants, and the answer is late
			<-answer
			return lease, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Lock(ctx, "key", locker.WithTTL(time.Hour))
		mustMatch(t, err, context.DeadlineExceeded)
		time.Sleep(100 * time.Millisecond)
		s.mustBeFree(t, "key")
		close(answer)
	})
}

func TestTheReleaseAfterTheMaximumHoldIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute), locker.WithMaxHold(time.Second))
		<-l.Context().Done()
		s.faults.Once(backendtest.DeleteIf, backendtest.Fail, backendtest.Fail)
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		s.mustBeFree(t, "key")
	})
}

func TestARestOfALeaseThatUnlockCouldNotReleaseIsReleasedInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute), locker.WithMaxHold(time.Second))
		<-l.Context().Done()
		s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		time.Sleep(10 * time.Second) // longer than Unlock waits
		if _, _, held := s.store.Get("key"); !held {
			t.Error("the key is gone although every release fails")
		}
		s.faults.Clear()
		time.Sleep(2 * time.Second)
		s.mustBeFree(t, "key")
	})
}

// The work may not have stopped: nobody has called Unlock.
func TestTheRestOfALeaseIsReleasedAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute), locker.WithMaxHold(time.Second))
		released := make(chan time.Time, 1)
		s.onRelease = func(context.Context) error { released <- time.Now(); return nil }
		<-l.Context().Done()
		if at, ends := <-released, l.Lease().Expires; !at.Equal(ends) {
			t.Errorf("released %v after the end of the lease; want 0s", at.Sub(ends))
		}
	})
}

// The simulation found this: the ctx given to Lock had ended, so the work was stopping. Then an
// extension found that a node of the quorum had lost the lock, and the other nodes were released at
// once, while the work still ran.
func TestTheRestOfALostLeaseIsKeptWhileTheHolderWindsUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		l, err := c.Lock(ctx, "key", locker.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, locker.ErrLost
		}
		mustMatch(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
		synctest.Wait()
		if _, _, held := s.store.Get("key"); !held {
			t.Error("the key was released before Unlock, while the work was stopping")
		}
		s.faults.Once(backendtest.DeleteIf, backendtest.Fail)
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		s.mustBeFree(t, "key")
	})
}

func TestUnlockUnderTheLocksContextWithoutCancelWaitsForTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		s.faults.Set(backendtest.DeleteIf, backendtest.Late(3*time.Second))
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), 5*time.Second)
		defer cancel()
		if err := l.Unlock(ctx); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	})
}

func TestAWakeUpOfAHeadThatLeavesWakesTheNextHead(t *testing.T) {
	for range 50 {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			never := locker.WithBackoff(func(int, float64) time.Duration { return time.Hour })
			s.store.Set("key", "other", 2*time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() {
				l, err := c.Lock(ctx, "key", never)
				if err == nil {
					err = l.Unlock(t.Context())
				}
				left <- err
			}()
			synctest.Wait()
			next := make(chan *locker.Lock)
			go func() { next <- mustLock(t, c, "key", never) }()
			synctest.Wait()
			began := time.Now()
			s.store.Delete("key")
			cancel()
			l := <-next
			if took := time.Since(began); took > time.Second {
				t.Fatalf("the next waiter slept for %v while the lock was free", took)
			}
			mustUnlock(t, l)
			<-left
		})
	}
}

func TestAPermanentErrorOfTheWatchReachesAllInLine(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Hour)
		noPermission := errors.New("not permitted")
		s.onWatch = func(context.Context) error { time.Sleep(time.Second); return noPermission }
		errs := make(chan error)
		for range 5 {
			go func() {
				_, err := c.Lock(t.Context(), "key")
				errs <- err
			}()
			synctest.Wait()
		}
		began := time.Now()
		for range 5 {
			mustMatch(t, <-errs, noPermission)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the waiters failed after %v; the watch failed after 1s", took)
		}
	})
}

// After a panic or runtime.Goexit in code of others, each line has a head, each caller has its answer
// and no lock stays locked.

func TestAPanicInABackoffOrALockerLeavesTheLineUsable(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		survive := func(what string, f func()) {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}
		s.store.Set("key", "other", time.Second)
		survive("backoff", func() {
			_, _ = c.Lock(t.Context(), "key", locker.WithBackoff(func(int, float64) time.Duration { panic("backoff") }))
		})
		mustUnlock(t, mustLock(t, c, "key"))
		s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) { panic("locker") }
		survive("locker", func() { _, _ = c.Lock(context.Background(), "key") })
		s.onAcquire = nil
		mustUnlock(t, mustLock(t, c, "key"))
	})
}

func TestALockerThatEndsItsGoroutineIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			runtime.Goexit()
			panic("not reached")
		}
		began := time.Now()
		if _, err := c.Lock(t.Context(), "key"); err == nil || errors.Is(err, locker.ErrHeld) || time.Since(began) != 0 {
			t.Errorf("Lock = %v after %v", err, time.Since(began))
		}
		s.onAcquire = nil
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		var once atomic.Bool
		s.mu.Lock()
		s.onExtend = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if once.CompareAndSwap(false, true) {
				runtime.Goexit()
			}
			return next()
		}
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		s.faults.Once(backendtest.DeleteIf, func(context.Context, func(context.Context) error) error {
			runtime.Goexit()
			panic("not reached")
		})
		if err := l.Unlock(t.Context()); err == nil {
			t.Error("Unlock = nil although the release was not answered")
		}
		s.store.Delete("key")
	})
}

func TestAPanicInAHookLeavesNothingLocked(t *testing.T) {
	for _, where := range []string{"begin", "end"} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			begun, ended := 0, 0
			counted := func(next locker.Locker) locker.Locker {
				return follower{next, func(call contract.Call) {
					call.OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
						begun++
						return ctx, func(time.Time, error) { ended++ }
					})
				}}
			}
			panics := func(next locker.Locker) locker.Locker {
				return follower{next, func(call contract.Call) {
					call.OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
						if where == "begin" {
							panic(where)
						}
						return ctx, func(time.Time, error) { panic(where) }
					})
				}}
			}
			hooked := locker.New(s, locker.WithMiddleware(counted, panics))
			func() {
				defer func() {
					if r := recover(); r != where {
						t.Errorf("recovered %v", r)
					}
				}()
				_ = hooked.Do(context.Background(), "key", func(context.Context, *locker.Lock) error { return nil })
			}()
			time.Sleep(time.Second)
			s.mustBeFree(t, "key")
			if begun != 1 || ended != 1 {
				t.Errorf("panic in %s: another hook has begun %d times and ended %d times", where, begun, ended)
			}
		})
	}
}

func TestLinesOfSeveralOwnersAreWokenAndEndOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onWatch = func(context.Context) error { return nil } // it never wakes a waiter
		never := locker.WithBackoff(func(int, float64) time.Duration { return time.Hour })
		held := mustLock(t, c, "key")
		owners := []string{"a", "b", "c", ""}
		got := make(chan *locker.Lock)
		cancels := map[string]context.CancelFunc{}
		for _, owner := range owners {
			ctx, cancel := context.WithCancel(locker.ContextWithOwner(t.Context(), owner))
			cancels[owner] = cancel
			go func() {
				l, err := c.Lock(ctx, "key", never)
				if err != nil {
					mustMatch(t, err, context.Canceled)
				}
				got <- l
			}()
			synctest.Wait()
		}
		cancels["b"]() // its line ends in the middle of the others
		if l := <-got; l != nil {
			t.Fatal("granted while the lock is held")
		}
		began := time.Now()
		l := held
		for range 3 {
			mustUnlock(t, l) // wakes every line: each head makes an attempt, one is granted
			if l = <-got; l == nil {
				t.Fatal("a waiter failed")
			}
		}
		mustUnlock(t, l)
		if took := time.Since(began); took > time.Second {
			t.Errorf("three grants took %v; want no pause", took)
		}
		for _, cancel := range cancels {
			cancel()
		}
	})
}

func TestAnExtensionByHandHasTheDeadlineOfTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.ExpireIf, backendtest.Hang)
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		end := l.Lease().Expires
		mustMatch(t, l.Extend(context.Background(), time.Minute), locker.ErrLost)
		if now := time.Now(); now.After(end) {
			t.Errorf("Extend returned %v after the end of the lease", now.Sub(end))
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestMiddlewareThatGrantsTooLateHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		c := locker.New(s, locker.WithTTL(time.Second), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return acquirer{next, func(lease contract.Lease) contract.Lease {
				time.Sleep(990 * time.Millisecond) // the lease has ended, the key has not
				return lease
			}}
		}))
		if _, err := c.Lock(t.Context(), "key"); err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Lock = %v", err)
		}
		synctest.Wait()
		s.mustBeFree(t, "key")
	})
}

func TestReleaseIsSentWhenNoExtensionIsUnderWay(t *testing.T) {
	for name, opts := range map[string][]locker.Option{
		"unlocked":               nil,
		"after the maximum hold": {locker.WithMaxHold(1200 * time.Millisecond)},
	} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			var underWay atomic.Int32
			s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				underWay.Add(1)
				defer underWay.Add(-1)
				<-ctx.Done()
				time.Sleep(20 * time.Millisecond) // a client library may return late
				return contract.Lease{}, ctx.Err()
			}
			s.faults.Once(backendtest.DeleteIf, func(ctx context.Context, execute func(context.Context) error) error {
				if n := underWay.Load(); n > 0 {
					t.Errorf("%s: released while %d extensions were under way", name, n)
				}
				return execute(ctx)
			})
			l := mustLock(t, c, "key", append(opts, locker.WithTTL(3*time.Second))...)
			time.Sleep(1210 * time.Millisecond)
			if underWay.Load() == 0 {
				t.Fatalf("%s: no extension is under way", name)
			}
			_ = l.Unlock(t.Context())
			s.mustBeFree(t, "key")
		})
	}
}
