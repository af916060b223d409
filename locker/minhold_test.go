package locker_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const minHold = 20 * time.Second

// unlocked takes the lock with a minimum hold, unlocks it after a second, and returns when it was
// granted.
func unlocked(t *testing.T, c *locker.Client, opts ...locker.Option) (granted time.Time) {
	t.Helper()
	l := mustLock(t, c, "key", append([]locker.Option{locker.WithMinHold(minHold)}, opts...)...)
	time.Sleep(time.Second)
	began := time.Now()
	mustUnlock(t, l)
	if took := time.Since(began); took != 0 {
		t.Errorf("Unlock took %v", took)
	}
	mustMatch(t, context.Cause(l.Context()), locker.ErrReleased)
	return l.Lease().Granted
}

// takenAt waits for the lock as another process does, and returns when that gets it.
func (s *spy) takenAt(t *testing.T) time.Time {
	t.Helper()
	l := mustLock(t, locker.New(s.Locker), "key")
	at := time.Now()
	mustUnlock(t, l)
	return at
}

func mustBeAfter(t *testing.T, what string, got time.Duration, want time.Duration) {
	t.Helper()
	if got < want || got > want+5*time.Millisecond {
		t.Errorf("%s after %v; want %v", what, got, want)
	}
}

func TestUnlockKeepsTheKeyForItsMinimumHold(t *testing.T) {
	for name, opts := range map[string]struct {
		ofCall   []locker.Option
		ofClient []locker.ClientOption
	}{
		"a shorter TTL":            {ofCall: []locker.Option{locker.WithTTL(5 * time.Second)}},
		"a longer TTL":             {ofCall: []locker.Option{locker.WithTTL(time.Minute)}},
		"a TTL of the same":        {ofCall: []locker.Option{locker.WithTTL(minHold)}},
		"without renewal":          {ofCall: []locker.Option{locker.WithoutRenewal()}},
		"a maximum hold as well":   {ofCall: []locker.Option{locker.WithMaxHold(10 * time.Second)}},
		"a Client for shared keys": {ofClient: []locker.ClientOption{locker.WithOtherSoftware()}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				granted := unlocked(t, c, opts.ofCall...)
				_, err := c.TryLock(t.Context(), "key")
				mustMatch(t, err, locker.ErrHeld)
				if _, extends, releases, _ := s.asked(); extends != 1 || releases != 0 {
					t.Errorf("Unlock sent %d Extends and %d Releases; want 1 and 0", extends, releases)
				}
				mustBeAfter(t, "another process got it", s.takenAt(t).Sub(granted), minHold)
				time.Sleep(time.Second)
				if _, extends, releases, _ := s.asked(); extends != 1 || releases != 1 {
					t.Errorf("in the end there were %d Extends and %d Releases; want 1 and 1", extends, releases)
				}
			}, opts.ofClient...)
		})
	}
}

// The clocks of the instances are a little apart, and the job is shorter than that. Without a
// minimum hold, every instance does it: the next one finds the lock free.
func TestAShortJobRunsOnceOnManyInstances(t *testing.T) {
	const instances, apart, work = 5, 30 * time.Millisecond, time.Millisecond
	for name, c := range map[string]struct {
		opts []locker.Option
		want int
	}{
		"with a minimum hold":    {[]locker.Option{locker.WithMinHold(time.Second)}, 1},
		"without a minimum hold": {nil, instances},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				ran := 0
				for range instances { // each in its own process
					err := locker.New(single.New(store)).Do(t.Context(), "report/2026-11-22", func(context.Context, *locker.Lock) error {
						time.Sleep(work)
						ran++
						return nil
					}, append(c.opts, locker.WithAttempts(1))...)
					if err != nil {
						mustMatch(t, err, locker.ErrHeld)
					}
					time.Sleep(apart)
				}
				if ran != c.want {
					t.Errorf("the job ran on %d of %d instances; want %d", ran, instances, c.want)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// The process dies after Unlock, so its Release is never sent.
func TestAKeptKeyIsFreeByItselfAlthoughTheProcessDies(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		5 * time.Second: minHold,
		time.Minute:     time.Minute, // no Extend makes a lease shorter
	} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.onRelease = func(ctx context.Context) error { return errors.New("dead") }
			granted := unlocked(t, c, locker.WithTTL(ttl))
			mustBeAfter(t, "another process got it", s.takenAt(t).Sub(granted), want)
			time.Sleep(time.Minute) // the Client gives up its Release
		})
	}
}

// A process that dies before Unlock may have done the work.
func TestAMinimumHoldOutlivesADeadHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		hang := func(ctx context.Context, _ func() (contract.Lease, error)) (contract.Lease, error) {
			<-ctx.Done()
			return contract.Lease{}, ctx.Err()
		}
		s.onExtend, s.onRelease = hang, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(time.Second))
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
		time.Sleep(time.Minute)
	})
}

func TestAMinimumHoldThatIsOverChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		time.Sleep(minHold)
		_, before, _, _ := s.asked()
		mustUnlock(t, l)
		s.mustBeFree(t, "key")
		if _, extends, releases, _ := s.asked(); extends != before || releases != 1 {
			t.Errorf("Unlock sent %d Extends and %d Releases; want 0 and 1", extends-before, releases)
		}
	})
}

// The lease is renewed as usual, from when two thirds of a TTL are left: its holder relies on the TTL.
func TestALeaseWithAMinimumHoldIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const ttl = 6 * time.Second
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(ttl))
		granted, end := l.Lease().Granted, l.Lease().Expires
		if want := contract.Until(granted, ttl); !end.Equal(want) {
			t.Errorf("the lease ends %v after the grant; want %v", end.Sub(granted), want.Sub(granted))
		}
		time.Sleep(time.Until(end) - ttl*2/3 - ttl/50)
		if _, extends, _, _ := s.asked(); extends != 0 {
			t.Errorf("%d renewals before two thirds of the TTL were left", extends)
		}
		time.Sleep(time.Minute)
		if err := l.Context().Err(); err != nil {
			t.Errorf("the context ended: %v", context.Cause(l.Context()))
		}
		mustUnlock(t, l)
		s.mustBeFree(t, "key")
	})
}

func TestDoFreesAtOnceIfTheWorkFailed(t *testing.T) {
	failure := errors.New("write failed")
	for name, work := range map[string]func(context.Context, *locker.Lock) error{
		"an error": func(context.Context, *locker.Lock) error { return failure },
		"a panic":  func(context.Context, *locker.Lock) error { panic(failure) },
		"Goexit":   func(context.Context, *locker.Lock) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				var gone sync.WaitGroup
				gone.Go(func() {
					defer func() { _ = recover() }()
					err := c.Do(t.Context(), "key", work, locker.WithMinHold(minHold))
					mustMatch(t, err, failure)
				})
				gone.Wait()
				s.mustBeFree(t, "key")
			})
		})
	}
}

func TestDoKeepsTheKeyIfTheWorkIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		began := time.Now()
		work := func(context.Context, *locker.Lock) error { return nil }
		if err := c.Do(t.Context(), "key", work, locker.WithMinHold(minHold)); err != nil {
			t.Errorf("Do = %v", err)
		}
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(began), minHold)
	})
}

// Work that unlocks is done, whatever it returns.
func TestWorkThatUnlockedBeforeItFailedKeepsTheKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		began, failure := time.Now(), errors.New("write failed")
		err := c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error {
			mustUnlock(t, l)
			return failure
		}, locker.WithMinHold(minHold))
		mustMatch(t, err, failure)
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(began), minHold)
	})
}

func TestASecondUnlockOfAKeptLockReturnsTheFirstResult(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { mustUnlock(t, l) })
		}
		all.Wait()
		mustUnlock(t, l)
		mustMatch(t, l.Extend(t.Context(), time.Second), locker.ErrReleased)
		if _, extends, releases, _ := s.asked(); extends != 1 || releases != 0 {
			t.Errorf("%d Extends and %d Releases; want 1 and 0", extends, releases)
		}
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
		mustUnlock(t, l)
	})
}

// The minimum hold of a Client that unlocked keeps its own waiters too.
func TestAKeptKeyWakesAWaiterOfItsClientOnceAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(minHold+time.Second))
		next := take(t, c, "key")
		time.Sleep(time.Second)
		before, _, _, _ := s.asked()
		mustUnlock(t, l)
		synctest.Wait()
		if acquires, _, _, _ := s.asked(); acquires != before {
			t.Errorf("Unlock woke the waiter, which made %d attempts", acquires-before)
		}
		got := <-next
		mustBeAfter(t, "the waiter got it", time.Since(l.Lease().Granted), minHold)
		mustUnlock(t, got)
	})
}

func TestALockWithAMinimumHoldIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		next := take(t, c, "key")
		mustUnlock(t, l)
		got := <-next
		mustBeAfter(t, "the waiter got it", time.Since(l.Lease().Granted), minHold)
		if got.Lease().Token == l.Lease().Token {
			t.Error("the waiter has the lease of the holder before")
		}
		mustUnlock(t, got)
	}, locker.WithMaxHandovers(10))
}

func TestALockWithAMinimumHoldIsNotHandedOverAlthoughItsWorkFailed(t *testing.T) {
	failure := errors.New("write failed")
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var next <-chan *locker.Lock
		var token string
		err := c.Do(t.Context(), "key", func(_ context.Context, l *locker.Lock) error {
			next, token = take(t, c, "key"), l.Lease().Token
			return failure
		}, locker.WithMinHold(minHold))
		mustMatch(t, err, failure)
		if _, _, releases, _ := s.asked(); releases != 1 {
			t.Errorf("when Do has returned, %d Releases were sent; want 1", releases)
		}
		got := <-next
		if got.Lease().Token == token {
			t.Error("the waiter has the lease of the holder before")
		}
		mustUnlock(t, got)
	}, locker.WithMaxHandovers(10))
}

// What is left of a lease that is handed over may be shorter than the minimum hold.
func TestALockWithAMinimumHoldTakesNoLeaseOfAnotherHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(time.Minute))
		next := make(chan *locker.Lock)
		go func() {
			next <- mustGet(c.Lock(context.WithoutCancel(t.Context()), "key", locker.WithMinHold(minHold)))
		}()
		synctest.Wait()
		mustUnlock(t, l)
		got := <-next
		if got.Lease().Token == l.Lease().Token {
			t.Error("it has the lease of the holder before")
		}
		granted := got.Lease().Granted
		mustUnlock(t, got)
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(granted), minHold)
	}, locker.WithMaxHandovers(10))
}

func TestTheMaximumHoldDoesNotEndTheMinimumHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithMaxHold(time.Second))
		<-l.Context().Done()
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
	})
	t.Run("without Unlock", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithMaxHold(time.Second))
			mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
			if _, _, releases, _ := s.asked(); releases != 1 {
				t.Errorf("%d releases by the holder; want 1", releases)
			}
		})
	})
	t.Run("unless the work of Do failed", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			err := c.Do(t.Context(), "key", func(ctx context.Context, _ *locker.Lock) error {
				<-ctx.Done()
				return ctx.Err()
			}, locker.WithMinHold(minHold), locker.WithMaxHold(time.Second))
			mustMatch(t, err, locker.ErrLost)
			s.mustBeFree(t, "key")
		})
	})
}

func TestALostLockHasNoMinimumHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		s.store.Set("key", "thief", time.Second)
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		next := mustLock(t, c, "key") // the thief's is over after a second
		time.Sleep(time.Minute)
		if err := next.Context().Err(); err != nil {
			t.Errorf("a late Release ended the next hold: %v", context.Cause(next.Context()))
		}
		mustUnlock(t, next)
	})
}

func TestALostReplyDoesNotHideThatAKeptLockIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			s.onExtend = nil
			s.store.Set("key", "thief", time.Second)
			return contract.Lease{}, backendtest.ErrInjected
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
	})
}

// Some nodes of a quorum may still have the lease.
func TestWhatALossLeavesOfAKeptLockIsReleasedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, locker.Lost(l.Lease())
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		s.mustBeFree(t, "key")
	})
}

// The process was suspended after Unlock, and another one has the lock when it goes on.
func TestALateReleaseOfAKeptKeyFindsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		mustUnlock(t, mustLock(t, c, "key", locker.WithMinHold(minHold)))
		s.store.Delete("key") // as if the minimum hold were over for the store
		other := mustLock(t, locker.New(s.Locker), "key")
		time.Sleep(minHold + time.Second)
		if _, _, releases, _ := s.asked(); releases != 1 {
			t.Errorf("%d Releases; want the late one", releases)
		}
		mustUnlock(t, other)
	})
}

// A late copy of the Extend of Unlock lets the store keep the key for almost a second minimum hold.
// The cleanup lasts as long, and not only for a TTL.
func TestTheCleanupAfterAMinimumHoldLastsForALateExtend(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(time.Second))
		mustUnlock(t, l)
		time.Sleep(minHold - time.Millisecond)
		lease := l.Lease()
		lease.Expires = time.Time{} // by the clock of this process it has ended
		if _, err := s.Locker.Extend(t.Context(), lease, minHold); err != nil {
			t.Fatal(err)
		}
		over := time.Now().Add(5 * time.Second)
		s.mu.Lock()
		s.onRelease = func(ctx context.Context) error {
			if time.Now().Before(over) {
				return errors.New("connection refused")
			}
			return s.Locker.Release(ctx, lease)
		}
		s.mu.Unlock()
		time.Sleep(7 * time.Second)
		s.mustBeFree(t, "key")
	})
}

func TestAnUnlockThatCannotConfirmTheMinimumHoldSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
		err := l.Unlock(t.Context())
		mustMatch(t, err, backendtest.ErrInjected)
		mustNotMatch(t, err, locker.ErrLost)
		failed, ok := errors.AsType[*locker.Error](err)
		if !ok || failed.Op != "release" || !strings.Contains(err.Error(), "not confirmed; the lease ends by itself at ") {
			t.Errorf("Unlock = %v", err)
		}
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
	})
	t.Run("a permanent error at once", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key", locker.WithMinHold(minHold))
			s.faults.Set(backendtest.ExpireIf, backendtest.Permanent)
			began := time.Now()
			mustMatch(t, l.Unlock(t.Context()), backendtest.ErrInjected)
			if took := time.Since(began); took != 0 {
				t.Errorf("Unlock took %v", took)
			}
			mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
		})
	})
}

func TestALostReplyToTheExtendOfAMinimumHoldIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		s.faults.Once(backendtest.ExpireIf, backendtest.LoseReply)
		mustUnlock(t, l)
		if _, extends, releases, _ := s.asked(); extends != 2 || releases != 0 {
			t.Errorf("%d Extends and %d Releases; want 2 and 0", extends, releases)
		}
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
	})
}

// The Release at the end of the minimum hold may come before an Extend that was sent earlier.
func TestAnExtendThatIsAnsweredAfterTheMinimumHoldTellsOfNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(time.Minute))
		end := l.Lease().Granted.Add(minHold)
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			time.Sleep(time.Until(end.Add(50 * time.Millisecond)))
			return contract.Lease{}, locker.Lost(l.Lease())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		err := l.Unlock(ctx)
		mustNotMatch(t, err, locker.ErrLost)
		if failed, ok := errors.AsType[*locker.Error](err); !ok || failed.Op != "release" {
			t.Errorf("Unlock = %v; want that nothing is confirmed", err)
		}
		time.Sleep(5 * time.Second) // the Release waits for an answer to the calls that hung
		s.mustBeFree(t, "key")
	})
}

func TestDrainDoesNotWaitForAMinimumHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		granted := unlocked(t, c)
		began := time.Now()
		if err := c.Drain(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("Drain = %v after %v", err, time.Since(began))
		}
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(granted), minHold)
	})
	t.Run("but for an Extend without an answer", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key", locker.WithMinHold(minHold))
			s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
			_ = l.Unlock(done(t))
			time.AfterFunc(3*time.Second, s.faults.Clear)
			began := time.Now()
			if err := c.Drain(t.Context()); err != nil || time.Since(began) < 3*time.Second || time.Since(began) > 10*time.Second {
				t.Errorf("Drain = %v after %v", err, time.Since(began))
			}
			time.Sleep(minHold)
		})
	})
}

func TestTryLockHasAMinimumHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l, err := c.TryLock(t.Context(), "key", locker.WithMinHold(minHold))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, l)
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(l.Lease().Granted), minHold)
	})
}

// Middleware sees the hold end at Unlock, not when the key is free.
func TestTheHoldEndsAtUnlockForMiddleware(t *testing.T) {
	var ended []time.Time
	var causes []error
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		granted := unlocked(t, c)
		synctest.Wait() // for the hook
		if len(ended) != 1 || ended[0].Sub(granted) != time.Second || causes[0] != locker.ErrReleased {
			t.Errorf("ended at %v with %v", ended, causes)
		}
		time.Sleep(minHold)
		if len(ended) != 1 {
			t.Errorf("told %d times", len(ended))
		}
	}, locker.WithMiddleware(func(next locker.Locker) locker.Locker {
		return follower{next, func(call contract.Call) {
			call.OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
				return ctx, func(at time.Time, cause error) { ended, causes = append(ended, at), append(causes, cause) }
			})
		}}
	}))
}

// The limit of the store is about what a holder relies on.
func TestAMinimumHoldMayBeLongerThanTheLongestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locker.New(single.New(memory.New()), locker.WithWait(time.Minute))
		for _, d := range []time.Duration{30 * time.Second, 14 * time.Minute, locker.MaxMinHold} {
			key := "key/" + d.String()
			began := time.Now()
			if err := c.Do(t.Context(), key, func(context.Context, *locker.Lock) error { return nil }, locker.WithMinHold(d)); err != nil {
				t.Errorf("%v: %v", d, err)
			}
			time.Sleep(time.Until(began.Add(d - time.Millisecond)))
			_, err := c.TryLock(t.Context(), key)
			mustMatch(t, err, locker.ErrHeld)
			mustUnlock(t, mustLock(t, c, key))
			if after := time.Since(began); after > d+5*time.Millisecond {
				t.Errorf("%v: free after %v", d, after)
			}
		}
		began := time.Now()
		_, err := c.Lock(t.Context(), "key", locker.WithMinHold(time.Minute), locker.WithTTL(30*time.Second+time.Millisecond))
		if err == nil || !strings.Contains(err.Error(), "over the store's limit of 30s") || time.Since(began) != 0 {
			t.Errorf("a TTL over the limit: %v after %v", err, time.Since(began))
		}
	})
}

// The work may be done, and nobody knows: the key stays locked for whom it was meant. The release at
// the end frees what does not end by itself.
func TestALostLockKeepsItsMinimumHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const ttl = 2 * time.Second
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, errors.New("the store is silent")
		}
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(ttl))
		granted := l.Lease().Granted
		<-l.Context().Done()
		mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
		if lost := time.Since(granted); lost > ttl {
			t.Errorf("it was lost after %v", lost)
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(granted), minHold)
		if _, _, releases, _ := s.asked(); releases != 1 {
			t.Errorf("%d releases", releases)
		}
	})
}

// The work learns of the loss and fails, so another process can do it at once.
func TestALostLockWhoseWorkFailedHasNoMinimumHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
		var lost time.Time
		err := c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error {
			<-ctx.Done()
			lost = time.Now()
			return context.Cause(ctx)
		}, locker.WithMinHold(minHold), locker.WithTTL(2*time.Second))
		mustMatch(t, err, locker.ErrLost)
		mustBeAfter(t, "the key was free", s.takenAt(t).Sub(lost), 0)
	})
}

// The store may have forgotten the key.
func TestUnlockOfALostLockWithAMinimumHoldWakesTheNextWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(2*time.Second))
		next := take(t, c, "key")
		<-l.Context().Done()
		s.store.Set("key", "", time.Millisecond)
		time.Sleep(2 * time.Millisecond)
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		began := time.Now()
		mustUnlock(t, <-next)
		if took := time.Since(began); took != 0 {
			t.Errorf("the next waiter had the lock after %v; want 0s", took)
		}
	})
}

// The store is silent, and the lease has ended: Unlock is the end of the work, and waits for nothing.
func TestUnlockDoesNotWaitForTheReleaseOfALostLockWithAMinimumHold(t *testing.T) {
	for name, failed := range map[string]error{"the work is done": nil, "the work failed": errors.New("failed")} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.onExtend = func(ctx context.Context, _ func() (contract.Lease, error)) (contract.Lease, error) {
				time.Sleep(15 * time.Second) // whatever its ctx is
				return contract.Lease{}, ctx.Err()
			}
			s.onRelease = func(ctx context.Context) error {
				if ctx.Err() != nil {
					t.Errorf("%s: a Release under a ctx that has ended", name)
				}
				time.Sleep(15 * time.Second)
				return ctx.Err()
			}
			var lost time.Time
			err := c.Do(t.Context(), "key", func(ctx context.Context, l *locker.Lock) error {
				<-ctx.Done()
				lost = time.Now()
				return failed
			}, locker.WithMinHold(minHold), locker.WithTTL(2*time.Second))
			mustMatch(t, err, locker.ErrLost)
			if took := time.Since(lost); took != 0 {
				t.Errorf("%s: Unlock took %v", name, took)
			}
			time.Sleep(time.Minute)
		})
	}
}

// Each renewal lets the key live to the end of the minimum hold, and no strategy need know of it.
func TestARenewalDoesNotMakeAMinimumHoldShorter(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const ttl = 2 * time.Second
		var dead atomic.Bool
		s.onExtend = func(_ context.Context, ask func() (contract.Lease, error)) (contract.Lease, error) {
			if dead.Load() {
				return contract.Lease{}, errors.New("dead")
			}
			return ask()
		}
		s.onRelease = func(context.Context) error { return errors.New("dead") }
		l := mustLock(t, c, "key", locker.WithMinHold(minHold), locker.WithTTL(ttl))
		granted := l.Lease().Granted
		time.Sleep(10 * time.Second)
		if left := time.Until(l.Lease().Expires); left > ttl {
			t.Errorf("after renewals the lease lasts for another %v", left)
		}
		dead.Store(true)
		mustBeAfter(t, "another process got it", s.takenAt(t).Sub(granted), minHold)
		time.Sleep(time.Minute)
	})
}

// The Lock became garbage before Unlock: the lease runs out, and the key is locked no shorter than
// for the minimum hold.
func TestAnAbandonedLockKeepsItsMinimumHold(t *testing.T) {
	const d = 900 * time.Millisecond
	n, s, c := newNoted(locker.WithoutAbandonedRenewal(), locker.WithMinHold(d))
	lease := forget(t, c, "key", func(l *locker.Lock) contract.Lease { return l.Lease() })
	collect(func() bool { return n.end("key") != nil })
	mustMatch(t, n.end("key"), locker.ErrLost)
	for end := contract.Until(lease.Granted, d); ; time.Sleep(10 * time.Millisecond) {
		next, err := locker.New(s.Locker).TryLock(t.Context(), "key")
		if err == nil {
			if now := time.Now(); now.Before(end) {
				t.Errorf("another process got it %v before the end of the minimum hold", end.Sub(now))
			}
			mustUnlock(t, next)
			return
		}
		mustMatch(t, err, locker.ErrHeld)
	}
}

func TestABadMinimumHoldIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for d, want := range map[time.Duration]string{
			0:                      `lockstep: lock "key": minimum hold 0s is under the limit of 10ms`,
			-time.Second:           `lockstep: lock "key": minimum hold -1s is under the limit of 10ms`,
			24*time.Hour + 1e6:     `lockstep: lock "key": minimum hold 24h0m0.001s is over the limit of 24h0m0s`,
			9 * time.Millisecond:   `lockstep: lock "key": minimum hold 9ms is under the limit of 10ms`,
			time.Second + 1:        `lockstep: lock "key": minimum hold 1.000000001s is not in whole milliseconds`,
			time.Second + 999_999:  `lockstep: lock "key": minimum hold 1.000999999s is not in whole milliseconds`,
			-time.Second * 1000000: `lockstep: lock "key": minimum hold -277h46m40s is under the limit of 10ms`,
		} {
			if _, err := c.Lock(t.Context(), "key", locker.WithMinHold(d)); err == nil || err.Error() != want {
				t.Errorf("%v: %v; want\n%s", d, err, want)
			}
		}
		if acquires, _, _, _ := s.asked(); acquires != 0 {
			t.Error("something was sent")
		}
	})
}

// keptness notes which calls say that the key is kept.
type keptness struct {
	locker.Locker
	mu    sync.Mutex
	calls []string
}

func (k *keptness) note(ctx context.Context, call string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if contract.CallOf(ctx).Kept() {
		call += " kept"
	}
	k.calls = append(k.calls, call)
}

func (k *keptness) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	k.note(ctx, "extend")
	return k.Locker.Extend(ctx, lease, ttl)
}

func (k *keptness) Release(ctx context.Context, lease contract.Lease) error {
	k.note(ctx, "release")
	return k.Locker.Release(ctx, lease)
}

func TestMiddlewareLearnsWhichExtendKeepsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &keptness{Locker: single.New(memory.New())}
		c := locker.New(k, locker.WithTTL(9*time.Second))
		l := mustLock(t, c, "key", locker.WithMinHold(minHold))
		time.Sleep(4 * time.Second) // the lease of 9 s is renewed once 6 s are left
		mustUnlock(t, l)
		mustUnlock(t, mustLock(t, c, "another"))
		time.Sleep(time.Minute)
		k.mu.Lock()
		defer k.mu.Unlock()
		if got, want := strings.Join(k.calls, ", "), "extend, extend kept, release, release kept"; got != want {
			t.Errorf("calls: %s; want %s", got, want)
		}
	})
}

// The TTL decides whether a grant comes too late, and not the minimum hold: then Lock goes on.
func TestAGrantThatComesAfterItsTTLIsNotTheEndOfALockWithALongMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := 2 // answers that come when the lease is over, and before the limit of an attempt
		store := memory.New()
		c := locker.New(delayed{single.New(store), func() time.Duration {
			if late--; late >= 0 {
				return 495 * time.Millisecond
			}
			return 0
		}})
		l := mustLock(t, c, "key", locker.WithTTL(500*time.Millisecond), locker.WithMinHold(time.Minute), locker.WithWait(time.Hour))
		mustUnlock(t, l)
	})
}

// delayed answers after a pause, whatever its ctx.
type delayed struct {
	locker.Locker
	pause func() time.Duration
}

func (d delayed) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := d.Locker.Acquire(context.WithoutCancel(ctx), req)
	time.Sleep(d.pause())
	return lease, err
}
