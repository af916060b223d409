package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// onEnd is middleware that calls end when a hold is over.
func onEnd(end func(lease contract.Lease, cause error)) contract.Middleware {
	return func(next locker.Locker) locker.Locker {
		return follower{next, func(call contract.Call) {
			call.OnHold(func(ctx context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
				return ctx, func(_ time.Time, cause error) { end(lease, cause) }
			})
		}}
	}
}

func TestWhenLeasesEndTogetherAllContextsEndBeforeTheFirstHook(t *testing.T) {
	const n = 5000
	for name, looks := range map[string]bool{"a holder waits": false, "a holder looks at its context first": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
				var mu sync.Mutex
				var held []*locker.Lock
				var contexts []<-chan struct{}
				called, late := 0, 0
				locks := locker.New(s, locker.WithTTL(3*time.Second), locker.WithMiddleware(onEnd(func(contract.Lease, error) {
					mu.Lock()
					defer mu.Unlock()
					if called++; called > 1 {
						return
					}
					for _, done := range contexts { // a call of Err could end one
						select {
						case <-done:
						default:
							late++
						}
					}
				})))
				s.faults.Set(backendtest.ExpireIf, backendtest.Hang)
				for i := range n {
					held = append(held, mustLock(t, locks, fmt.Sprint(i)))
					contexts = append(contexts, held[i].Context().Done())
				}
				if looks {
					time.Sleep(time.Until(held[0].Lease().Expires))
					_ = held[0].Context().Err()
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if called != n || late != 0 {
					t.Errorf("hooks were called for %d of %d losses; %d contexts had not ended at the first", called, n, late)
				}
			})
		})
	}
}

// ender is a ctx whose first Done calls first. The Client calls Done when it makes a ctx below.
type ender struct {
	context.Context
	first func()
}

func (e *ender) Done() <-chan struct{} {
	if first := e.first; first != nil {
		e.first = nil
		first()
	}
	return e.Context.Done()
}

func TestAContextThatIsMadeWhileItsHoldEndsHasTheFirstCause(t *testing.T) {
	bubble(t, func(t *testing.T, _ *spy, c *locker.Client) {
		parent, cancel := context.WithCancel(t.Context())
		ctx := &ender{Context: parent}
		l, err := c.Lock(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		ctx.first = func() {
			_ = l.Unlock(t.Context())
			cancel()
		}
		<-l.Context().Done()
		mustMatch(t, context.Cause(l.Context()), locker.ErrReleased)
	})
}

// The scheduler calls the hook of a release that was not answered until its lease ended. Other hooks
// that are due then must not wait for that one.
func TestAHookOfAReleaseDelaysNoOtherHook(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		blocks, called := make(chan struct{}), make(chan error, 1)
		locks := locker.New(s, locker.WithTTL(3*time.Second), locker.WithoutRenewal(), locker.WithMiddleware(onEnd(func(lease contract.Lease, cause error) {
			if lease.Key == "released" {
				<-blocks
				return
			}
			called <- cause
		})))
		s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
		released := mustLock(t, locks, "released")
		// a release that fails until the lease ends is given up 100 ms later
		time.Sleep(100 * time.Millisecond)
		mustLock(t, locks, "lost")
		go func() { _ = released.Unlock(t.Context()) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		select {
		case cause := <-called:
			mustMatch(t, cause, locker.ErrLost)
		default:
			t.Error("the hook of the loss was not called while the hook of a release blocks")
		}
		close(blocks)
	})
}

func TestHooksOfManyLossesAreCalledByEightGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		const n = 500
		var mu sync.Mutex
		called, now, most := 0, 0, 0
		locks := locker.New(s, locker.WithTTL(time.Second), locker.WithoutRenewal(), locker.WithMiddleware(onEnd(func(contract.Lease, error) {
			mu.Lock()
			called, now = called+1, now+1
			most = max(most, now)
			if called%20 == 0 {
				defer runtime.Goexit() // a hook may end its goroutine
			}
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
		})))
		for i := range n {
			mustLock(t, locks, fmt.Sprint(i))
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if called != n || most != 8 {
			t.Errorf("hooks were called for %d of %d losses, %d at once; want 8", called, n, most)
		}
	})
}

func TestTheCostOfManyLossesOnASilentServerIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		const n = 12_000
		locks := locker.New(s, locker.WithTTL(3*time.Second))
		idle := goroutines()
		s.faults.Set(backendtest.ExpireIf, backendtest.Hang)
		s.faults.Set(backendtest.DeleteIf, backendtest.Hang)
		for i := range n {
			mustLock(t, locks, fmt.Sprint(i))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if more := goroutines() - idle; more > 50 {
			t.Errorf("%d goroutines after the loss of %d locks", more, n)
		}
		if stats := locks.Cleanups(); stats.Dropped == 0 || int(stats.Dropped)+stats.Entries != n {
			t.Errorf("%d leftovers are kept and %d dropped; want %d in all", stats.Entries, stats.Dropped, n)
		}
		s.faults.Clear()
		time.Sleep(time.Minute)
	})
}

// An acquire has a goroutine of its own, and does not count towards the limit for extensions.
func TestHungAcquiresDoNotDelayExtensionsAndReleases(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var held []*locker.Lock
		for i := range 300 {
			held = append(held, mustLock(t, c, fmt.Sprint(i), locker.WithTTL(3*time.Second)))
		}
		stuck := make(chan struct{})
		s.faults.Set(backendtest.SetNX, backendtest.Stall(stuck, backendtest.Fail)) // ignores its ctx
		var calls sync.WaitGroup
		for i := range 2000 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if _, err := c.Lock(ctx, fmt.Sprint("other ", i), locker.WithTTL(30*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Lock = %v", err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		for _, l := range held {
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatalf("Unlock = %v", err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the releases took %v", took)
		}
		calls.Wait()
		close(stuck)
	})
}

func TestDrainWaitsForReleasesAndCleanups(t *testing.T) {
	cancelled := func(t *testing.T, s *spy, c *locker.Client) { // the answer comes after the end of the ctx
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			defer time.Sleep(2 * time.Second)
			return next()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Lock(ctx, "key")
		mustMatch(t, err, context.DeadlineExceeded)
	}
	for name, leave := range map[string]func(t *testing.T, s *spy, c *locker.Client){
		"a release that its caller has left": func(t *testing.T, s *spy, c *locker.Client) {
			s.faults.Once(backendtest.DeleteIf, backendtest.Late(500*time.Millisecond))
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			mustMatch(t, mustLock(t, c, "key").Unlock(ctx), context.DeadlineExceeded)
		},
		"a release that is repeated": func(t *testing.T, s *spy, c *locker.Client) {
			s.faults.Once(backendtest.DeleteIf, backendtest.Fail, backendtest.Fail, backendtest.Fail)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			mustMatch(t, mustLock(t, c, "key").Unlock(ctx), context.DeadlineExceeded)
		},
		"a grant whose caller has left": cancelled,
		// a cleanup of the strategy
		"an attempt that the store answers late": func(t *testing.T, s *spy, c *locker.Client) {
			s.faults.Once(backendtest.SetNX, backendtest.LoseReply)
			s.faults.Once(backendtest.DeleteIf, backendtest.Fail, backendtest.Fail)
			_, err := c.Lock(t.Context(), "key")
			mustMatch(t, err, backendtest.ErrInjected)
		},
		"what a lost lock has left": func(t *testing.T, s *spy, c *locker.Client) {
			s.faults.Set(backendtest.ExpireIf, backendtest.LoseReply)
			l := mustLock(t, c, "key")
			<-l.Context().Done()
			s.faults.Once(backendtest.DeleteIf, backendtest.Fail)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				leave(t, s, c)
				if err := c.Drain(t.Context()); err != nil {
					t.Errorf("Drain = %v", err)
				}
				s.mustBeFree(t, "key")
			})
		})
	}
}

func TestDrainEndsWithItsCtxAndSaysWhatIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		if err := c.Drain(t.Context()); err != nil {
			t.Errorf("Drain of nothing = %v", err)
		}
		held := mustLock(t, c, "held") // Drain does not wait for it
		l := mustLock(t, c, "key")
		s.faults.Set(backendtest.DeleteIf, backendtest.Fail)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		mustMatch(t, l.Unlock(ctx), context.DeadlineExceeded)
		err := c.Drain(ctx)
		mustMatch(t, err, context.DeadlineExceeded)
		const want = "lockstep: drain: attempts, releases or cleanups that are not answered: 1; their leases end by themselves: context deadline exceeded"
		if err == nil || err.Error() != want {
			t.Errorf("%v; want\n%s", err, want)
		}
		s.faults.Clear()
		mustUnlock(t, held)
		if err := c.Drain(t.Context()); err != nil {
			t.Errorf("Drain = %v", err)
		}
		s.mustBeFree(t, "key")
	})
}

// The cleanup of an attempt begins with its answer. A program that ends before that leaves a lock
// without a holder.
func TestDrainWaitsForAnAttemptUnderWay(t *testing.T) {
	for name, by := range map[string]func(c *locker.Client, ctx context.Context, key string, opts ...locker.Option) (*locker.Lock, error){
		"Lock": (*locker.Client).Lock, "TryLock": (*locker.Client).TryLock,
	} {
		for _, left := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, left by its caller %v", name, left), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
					s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
						time.Sleep(3 * time.Second) // as a client library that ignores its ctx
						return next()
					}
					limit := time.Minute
					if left {
						limit = time.Second
					}
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					result := make(chan error, 1)
					go func() {
						l, err := by(c, ctx, "key")
						if err == nil {
							mustUnlock(t, l)
						}
						result <- err
					}()
					if left {
						mustMatch(t, <-result, context.DeadlineExceeded)
					} else {
						synctest.Wait()
					}
					began := time.Now()
					if err := c.Drain(t.Context()); err != nil {
						t.Errorf("Drain = %v", err)
					}
					if waited := time.Since(began); waited < 2*time.Second {
						t.Errorf("Drain returned after %v, before the answer", waited)
					}
					if !left {
						if err := <-result; err != nil {
							t.Errorf("%s = %v", name, err)
						}
					}
					s.mustBeFree(t, "key")
				})
			})
		}
	}
}

func TestDrainDoesNotWaitForALockThatSleeps(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiters sync.WaitGroup
		for range 3 { // the head of a line, and two behind it
			waiters.Go(func() {
				_, err := c.Lock(ctx, "key")
				mustMatch(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		began := time.Now()
		if err := c.Drain(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("Drain = %v after %v", err, time.Since(began))
		}
		cancel()
		waiters.Wait()
	})
}

// Each call to a client library that is closed fails with a permanent error.
func TestDrainReturnsWhenTheClientLibraryIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Once(backendtest.SetNX, backendtest.LoseReply)
		s.faults.Set(backendtest.DeleteIf, backendtest.Permanent)
		_, err := c.Lock(t.Context(), "key")
		mustMatch(t, err, backendtest.ErrInjected)
		began := time.Now()
		if err := c.Drain(t.Context()); err != nil || time.Since(began) != 0 {
			t.Errorf("Drain = %v after %v", err, time.Since(began))
		}
	})
}
