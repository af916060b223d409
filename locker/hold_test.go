package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// lostBecause says why l was lost, or "" if it was not.
func lostBecause(l *locker.Lock) locker.LostReason {
	var lost *locker.LostError
	if errors.As(context.Cause(l.Context()), &lost) {
		return lost.Reason
	}
	return ""
}

func TestALockIsExtendedAtAThirdOfItsTTLForAsLongAsItIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		began := time.Now()
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		time.Sleep(30 * time.Second)
		if l.Context().Err() != nil {
			t.Fatalf("lost: %v", context.Cause(l.Context()))
		}
		mustUnlock(t, l)
		for i, at := range s.extends {
			if want := time.Duration(i+1) * time.Second; (at.Sub(began) - want).Abs() > time.Duration(i+1)*60*time.Millisecond {
				t.Errorf("extension %d came after %v; want %v", i+1, at.Sub(began), want)
			}
		}
		if n := len(s.extends); n < 29 || n > 32 {
			t.Errorf("%d extensions in 30 s; want about 30", n)
		}
	})
}

func TestWithoutRenewalALockEndsWithItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		<-l.Context().Done()
		if now, end := time.Now(), l.Lease().Expires; !now.Equal(end) {
			t.Errorf("the context ended at %v, the lease at %v", now, end)
		}
		mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
		if why := lostBecause(l); why != locker.LostExpired {
			t.Errorf("lost because %q", why)
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestFailedExtensionsAreRepeatedSoonerAndSooner(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
		l := mustLock(t, c, "key", locker.WithTTL(9*time.Second))
		<-l.Context().Done()
		if now, end := time.Now(), l.Lease().Expires; !now.Equal(end) {
			t.Errorf("the context ended at %v, the lease at %v", now, end)
		}
		if why := lostBecause(l); why != locker.LostUnavailable {
			t.Errorf("lost because %q", why)
		}
		mustMatch(t, context.Cause(l.Context()), backendtest.ErrInjected)
		if len(s.extends) < 8 || len(s.extends) > 100 {
			t.Errorf("%d extensions", len(s.extends))
		}
		for i := 2; i < len(s.extends); i++ {
			gap, before := s.extends[i].Sub(s.extends[i-1]), s.extends[i-1].Sub(s.extends[i-2])
			if gap > before {
				t.Errorf("extension %d came %v after the last, which came %v after the one before", i, gap, before)
			}
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestOneExtensionThatSucceedsSavesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
		l := mustLock(t, c, "key", locker.WithTTL(9*time.Second))
		time.Sleep(8500 * time.Millisecond)
		s.faults.Clear()
		time.Sleep(30 * time.Second)
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		mustUnlock(t, l)
	})
}

func TestAnExtensionThatHangsDelaysNeitherTheNextNorUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		stuck := make(chan struct{})
		s.faults.Once(backendtest.ExpireIf, backendtest.Stall(stuck, backendtest.Fail)) // one connection, ignoring every ctx
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		time.Sleep(20 * time.Second)
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		began := time.Now()
		mustUnlock(t, l) // waits for it for 100 ms at most
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("Unlock took %v", took)
		}
		s.mustBeFree(t, "key")
		close(stuck)
	})
}

func TestALossEndsTheContextByExpiresWhateverTheStoreDoes(t *testing.T) {
	for name, fault := range map[string]backendtest.Fault{
		"hangs":                backendtest.Hang,
		"ignores its ctx":      nil, // set below, within the bubble
		"answers late":         backendtest.Late(time.Minute),
		"fails permanently":    backendtest.Permanent,
		"loses replies, hangs": backendtest.LoseReplyHang,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				release := make(chan struct{})
				if fault == nil {
					fault = backendtest.Stall(release, backendtest.Fail)
				}
				s.faults.Set(backendtest.ExpireIf, fault)
				l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
				end := l.Lease().Expires
				<-l.Context().Done()
				if now := time.Now(); !now.Equal(end) {
					t.Errorf("the context ended at %v, the lease at %v", now, end)
				}
				mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
				mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
				close(release)
				time.Sleep(2 * time.Minute) // a late answer changes nothing
				if !l.Lease().Expires.Equal(end) {
					t.Errorf("Expires moved after the end, to %v", l.Lease().Expires)
				}
			})
		})
	}
}

func TestALockTakenByAnotherIsLostAtTheNextRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		s.store.Set("key", "thief", time.Minute)
		<-l.Context().Done()
		if why := lostBecause(l); why != locker.LostStolen {
			t.Errorf("lost because %q", why)
		}
		if left := time.Until(l.Lease().Expires); left < time.Second {
			t.Errorf("the context ended %v before Expires; want at the first renewal", left)
		}
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		if value, _, _ := s.store.Get("key"); value != "thief" {
			t.Errorf("the key holds %q", value)
		}
	})
}

func TestALossSendsOneReleaseForTheRestOfTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.ExpireIf, backendtest.LoseReply) // the store extends, and the reply is lost
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		<-l.Context().Done()
		synctest.Wait()
		s.mustBeFree(t, "key")
		if _, _, releases, _ := s.asked(); releases != 1 {
			t.Errorf("%d releases", releases)
		}
	})
}

func TestWithMaxHoldEndsTheHoldWithACauseOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		began := time.Now()
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second), locker.WithMaxHold(10*time.Second))
		<-l.Context().Done()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("ended after %v", took)
		}
		if why := lostBecause(l); why != locker.LostMaxHold {
			t.Errorf("lost because %q", why)
		}
		_, extends, _, _ := s.asked()
		synctest.Wait()
		if _, left, held := s.store.Get("key"); !held || left > 3*time.Second {
			t.Errorf("held %v for %v; the lease must last on while the work stops, and must not be renewed", held, left)
		}
		time.Sleep(time.Second)
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		s.mustBeFree(t, "key")
		if _, after, _, _ := s.asked(); after != extends {
			t.Errorf("%d extensions after the end", after-extends)
		}
	})
}

func TestWhenTheCtxOfLockEndsTheLeaseRunsOutUnlessUnlocked(t *testing.T) {
	for _, unlock := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			l, err := c.Lock(ctx, "key", locker.WithTTL(3*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			cancel()
			mustMatch(t, l.Context().Err(), context.Canceled)
			synctest.Wait()
			_, before, _, _ := s.asked()
			if unlock {
				mustUnlock(t, l)
				s.mustBeFree(t, "key")
				return
			}
			time.Sleep(10 * time.Second)
			if _, after, _, _ := s.asked(); after != before {
				t.Errorf("%d extensions after the end of the ctx", after-before)
			}
			s.mustBeFree(t, "key")
			mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		})
	}
}

func TestExtendMovesExpiresAndReportsFailuresAndLosses(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second), locker.WithoutRenewal())
		first := l.Lease().Expires
		for _, bad := range []time.Duration{0, 9 * time.Millisecond, time.Second + 1} {
			if err := l.Extend(t.Context(), bad); err == nil {
				t.Errorf("Extend by %v = nil", bad)
			}
		}
		if err := l.Extend(t.Context(), time.Second); err != nil || !l.Lease().Expires.Equal(first) {
			t.Errorf("Extend by less = %v, Expires moved by %v", err, l.Lease().Expires.Sub(first))
		}
		if err := l.Extend(t.Context(), time.Minute); err != nil || l.Lease().Expires.Sub(first) < 50*time.Second {
			t.Errorf("Extend by more = %v, Expires moved by %v", err, l.Lease().Expires.Sub(first))
		}
		time.Sleep(50 * time.Second)
		if err := l.Context().Err(); err != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		s.faults.Set(backendtest.ExpireIf, backendtest.Fail)
		err := l.Extend(t.Context(), time.Minute)
		mustMatch(t, err, backendtest.ErrInjected)
		mustNotMatch(t, err, locker.ErrLost)
		s.faults.Clear()
		s.store.Delete("key")
		mustMatch(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
		if why := lostBecause(l); why != locker.LostStolen {
			t.Errorf("lost because %q", why)
		}
		mustMatch(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	})
}

func TestExtendReturnsWithItsCtxAndALaterAnswerCounts(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		s.faults.Set(backendtest.ExpireIf, backendtest.Late(2*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began, before := time.Now(), l.Lease().Expires
		mustMatch(t, l.Extend(ctx, time.Minute), context.DeadlineExceeded)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Extend took %v", took)
		}
		time.Sleep(2 * time.Second)
		after := l.Lease().Expires
		if want := contract.Until(began, time.Minute); !after.After(before) || after.After(want) {
			t.Errorf("Expires is %v, want at most %v: the TTL counts from before the call", after, want)
		}
		mustUnlock(t, l)
	})
}

func TestExtendUnderACtxThatIsDoneSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithoutRenewal())
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		err := l.Extend(ctx, time.Minute)
		mustMatch(t, err, context.Canceled, why)
		mustNotMatch(t, err, locker.ErrLost)
		synctest.Wait()
		if _, extends, _, _ := s.asked(); extends != 0 {
			t.Errorf("%d extensions were sent", extends)
		}
		mustUnlock(t, l)
	})
}

func TestAnErrorThatWrapsErrLostIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, fmt.Errorf("no such session: %w", locker.ErrLost)
		}
		l := mustLock(t, c, "key", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		mustMatch(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
		mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
		if why := lostBecause(l); why != locker.LostStolen {
			t.Errorf("lost because %q", why)
		}
	})
}

// Each answer takes longer than the third of the TTL after which the next extension is due.
func TestOverdueRenewalsAreNotSentAllAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const slow = 40 * time.Millisecond
		var answered []time.Time
		s.onExtend = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			time.Sleep(slow)
			lease, err := next()
			s.mu.Lock()
			defer s.mu.Unlock()
			answered = append(answered, time.Now())
			return lease, err
		}
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next()
			time.Sleep(slow)
			return lease, err
		}
		l := mustLock(t, c, "key", locker.WithTTL(100*time.Millisecond))
		granted := time.Now()
		time.Sleep(time.Second)
		mustUnlock(t, l)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.extends) == 0 || !s.extends[0].After(granted) {
			t.Errorf("granted at %v, extended at %v; want a pause before the first", granted, s.extends)
		}
		for _, came := range answered {
			for _, sent := range s.extends {
				if sent.Equal(came) {
					t.Errorf("an extension is sent at the moment at which another is answered: %v", sent)
				}
			}
		}
	})
}

func TestRenewalSparesALeaseThatWasMadeLonger(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(3*time.Second))
		if err := l.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		if _, extends, _, _ := s.asked(); extends != 1 {
			t.Errorf("%d extensions while the lease lasts", extends)
		}
		time.Sleep(50 * time.Second)
		if err := l.Context().Err(); err != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		mustUnlock(t, l)
	})
}

func TestAThousandLocksAreKeptAliveByOneTimer(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		idle := goroutines()
		var locks []*locker.Lock
		for i := range 1000 {
			locks = append(locks, mustLock(t, c, string(rune('a'+i%26))+string(rune('0'+i/26)), locker.WithTTL(3*time.Second)))
		}
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if n := goroutines() - idle; n > 10 { // the process has others that begin and end
			t.Errorf("%d goroutines for 1000 locks", n)
		}
		time.Sleep(10 * time.Second)
		if n := c.Scheduled(); n != 1000 {
			t.Errorf("%d locks are in the scheduler; want 1000", n)
		}
		for _, l := range locks {
			mustUnlock(t, l)
		}
	})
}

func TestAtMost256ExtensionsAreUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		now, most := make(chan int, 1), 0
		now <- 0
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			n := <-now + 1
			most = max(most, n)
			now <- n
			time.Sleep(20 * time.Millisecond)
			now <- (<-now - 1)
			return next()
		}
		var locks []*locker.Lock
		for i := range 2000 {
			locks = append(locks, mustLock(t, c, string(rune('a'+i%26))+string(rune('0'+i/26)), locker.WithTTL(3*time.Second)))
		}
		time.Sleep(10 * time.Second)
		n := <-now // the lock of most
		if most != 256 {
			t.Errorf("%d extensions at once; want 256", most)
		}
		now <- n
		for _, l := range locks {
			if l.Context().Err() != nil {
				t.Fatalf("lost: %v", context.Cause(l.Context()))
			}
			mustUnlock(t, l)
		}
	})
}

func TestMiddlewareKnowsOfALossBeforeDoReturns(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			reported := false
			followed := locker.New(s, locker.WithMiddleware(func(next locker.Locker) locker.Locker {
				return follower{next, func(call contract.Call) {
					call.OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
						return ctx, func(time.Time, error) {
							time.Sleep(time.Millisecond) // a hook may take long
							reported = true
						}
					})
				}}
			}))
			err := followed.Do(t.Context(), "key", func(ctx context.Context, _ *locker.Lock) error {
				s.store.Delete("key")
				<-ctx.Done()
				return nil
			})
			mustMatch(t, err, locker.ErrLost)
			if !reported {
				t.Error("Do returned before the hook: a program that ends now reports no loss")
			}
		})
	}
}

func TestAReleaseThatNeverReturnsEndsTheHoldForMiddleware(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		stuck := make(chan struct{})
		s.faults.Set(backendtest.DeleteIf, backendtest.Stall(stuck, nil))
		var ended error
		followed := locker.New(s, locker.WithTTL(3*time.Second), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return follower{next, func(call contract.Call) {
				call.OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
					return ctx, func(_ time.Time, cause error) { ended = cause }
				})
			}}
		}))
		l := mustLock(t, followed, "key")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustMatch(t, l.Unlock(ctx), context.DeadlineExceeded)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mustMatch(t, ended, locker.ErrReleased)
		if failed := new(*locker.Error); !errors.As(ended, failed) {
			t.Errorf("the hold ended with %v; want an *Error of the release as well", ended)
		}
		close(stuck)
	})
}

func TestOnHoldBeginsOnceAndEndsOnceWithTheInstantAndTheCause(t *testing.T) {
	type key struct{}
	for name, end := range map[string]func(t *testing.T, s *spy, l *locker.Lock) error{
		"unlock": func(t *testing.T, s *spy, l *locker.Lock) error {
			mustUnlock(t, l)
			_ = l.Unlock(t.Context())
			return locker.ErrReleased
		},
		"loss without unlock": func(t *testing.T, s *spy, l *locker.Lock) error {
			s.store.Delete("key")
			<-l.Context().Done()
			return locker.ErrLost
		},
		"loss found by the release": func(t *testing.T, s *spy, l *locker.Lock) error {
			s.store.Delete("key")
			_ = l.Unlock(t.Context())
			return locker.ErrLost
		},
		"expiry, never unlocked": func(t *testing.T, s *spy, l *locker.Lock) error {
			s.faults.Set(backendtest.ExpireIf, backendtest.Hang)
			time.Sleep(time.Minute)
			return locker.ErrLost
		},
		"release that is never answered": func(t *testing.T, s *spy, l *locker.Lock) error {
			s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
			_ = l.Unlock(t.Context())
			return locker.ErrReleased
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log []string
			var causes []error
			var ats []time.Time
			follow := func(label string) contract.Middleware {
				return func(next locker.Locker) locker.Locker {
					return follower{next, func(call contract.Call) {
						call.OnHold(func(ctx context.Context, l contract.Lease) (context.Context, func(time.Time, error)) {
							log = append(log, label+" begins")
							outer, _ := ctx.Value(key{}).(string)
							return context.WithValue(ctx, key{}, outer+label), func(at time.Time, cause error) {
								log = append(log, label+" ends")
								causes, ats = append(causes, cause), append(ats, at)
							}
						})
					}}
				}
			}
			synctest.Test(t, func(t *testing.T) {
				s := newSpy()
				c := locker.New(contract.Wrap(s, follow("c"), follow("d")), locker.WithMiddleware(follow("a"), follow("b")), locker.WithTTL(3*time.Second))
				l := mustLock(t, c, "key")
				if value := l.Context().Value(key{}); value != "abcd" {
					t.Errorf("the context went through %v", value)
				}
				var over time.Time
				context.AfterFunc(l.Context(), func() { over = time.Now() })
				want := end(t, s, l)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for _, at := range ats {
					if !at.Equal(over) {
						t.Errorf("over at %v; its context ended at %v", at, over)
					}
				}
				for _, cause := range causes {
					mustMatch(t, cause, want)
					var failed *locker.Error
					unanswered := errors.As(cause, &failed) && failed.Op == "release" && errors.Is(cause, backendtest.ErrInjected)
					if want == locker.ErrReleased && unanswered != (name == "release that is never answered") {
						t.Errorf("cause %v: has the error of the release: %v", cause, unanswered)
					}
				}
			})
			if want := []string{"a begins", "b begins", "c begins", "d begins", "d ends", "c ends", "b ends", "a ends"}; !slices.Equal(log, want) {
				t.Errorf("%v", log)
			}
		})
	}
}

// follower is middleware that follows the holds of the leases it passes on.
type follower struct {
	locker.Locker
	follow func(contract.Call)
}

func (f follower) Prompt() bool { return prompt.Of(f.Locker) }

func (f follower) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := f.Locker.Acquire(ctx, req)
	if err == nil {
		f.follow(contract.CallOf(ctx))
	}
	return lease, err
}

// acquirer is middleware that changes the leases it passes on.
type acquirer struct {
	locker.Locker
	change func(contract.Lease) contract.Lease
}

func (a acquirer) Prompt() bool { return prompt.Of(a.Locker) }

func (a acquirer) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := a.Locker.Acquire(ctx, req)
	if err == nil {
		lease = a.change(lease)
	}
	return lease, err
}
