package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
)

// Things that happen at the same time, or in an order that is hardly ever seen.

func TestAPlaceInLineThatIsGivenUpAsItBecomesTheHead(t *testing.T) {
	for range 300 {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			held := mustLock(t, c, "key")
			ctx, cancel := context.WithCancel(t.Context())
			for range 5 {
				go func() {
					if l, err := c.Lock(ctx, "key"); err == nil {
						_ = l.Unlock(t.Context()) // which of them gets it is open
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

func TestAnUnlockIsHeardInTheProcessWithoutTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onWatch = func(context.Context) error { return nil } // and it never wakes anybody
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
			t.Errorf("heard after %v", took)
		}
		mustUnlock(t, l)
	})
}

func TestTheEchoOfOnesOwnReleaseIsNoNews(t *testing.T) {
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
		for _, wake := range wakes { // the store tells of the release only now, when the next one holds it already
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

func TestAWakeDuringAnAttemptIsKept(t *testing.T) {
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
		l := <-second // so the line knows that this Client holds the lock
		s.onAcquire = func(ctx context.Context, next func() (locker.Lease, error)) (locker.Lease, error) {
			s.onAcquire = nil
			s.store.Set("key", "other", 2*time.Hour) // another process was faster
			lease, err := next()
			s.store.Delete("key")
			wake() // and has released it before we read the refusal
			return lease, err
		}
		began := time.Now()
		mustUnlock(t, l)
		l = <-third
		if took := time.Since(began); took > time.Second {
			t.Errorf("the wake was lost: %v", took)
		}
		mustUnlock(t, l)
	})
}

func TestAnExtensionThatIsAnsweredAfterASuspendDoesNotRevive(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(30*time.Minute))
		before := l.Lease().Expires
		s.onExtend = func(ctx context.Context, next func() (locker.Lease, error)) (locker.Lease, error) {
			lease, err := next()
			t.Cleanup(locker.JumpWallClock(45 * time.Minute)) // the machine was suspended before the reply was read
			return lease, err
		}
		_ = l.Extend(t.Context(), time.Hour)
		if !l.Lease().Expires.Equal(before) {
			t.Errorf("Expires moved by %v", l.Lease().Expires.Sub(before))
		}
		if l.Context().Err() == nil {
			t.Error("the lock is believed in")
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestExpiresNeverMovesBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute))
		before := l.Lease().Expires
		s.onExtend = func(ctx context.Context, next func() (locker.Lease, error)) (locker.Lease, error) {
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

func TestTheCtxOfAReleaseEndsAfterASecondForWhoAsksLate(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		asked := make(chan error, 1)
		s.faults.Once(backendtest.DeleteIf, func(ctx context.Context, execute func(context.Context) error) error {
			time.Sleep(2 * time.Second) // without a look at ctx
			select {
			case <-ctx.Done():
				asked <- ctx.Err()
			default:
				asked <- errors.New("Done is open")
			}
			return backendtest.ErrInjected
		})
		mustUnlock(t, mustLock(t, c, "key"))
		mustMatch(t, <-asked, context.DeadlineExceeded)
	})
}
