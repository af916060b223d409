package locker_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/prompt"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// unprompt is a Locker that does not say that its calls end by themselves, as middleware does not.
type unprompt struct{ locker.Locker }

// hung makes all attempts hang until over is called, whatever becomes of their ctx.
func (s *spy) hung() (over func()) {
	until := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
		<-until
		return contract.Lease{}, errors.New("too late")
	}
	return func() {
		s.mu.Lock()
		s.onAcquire = nil
		s.mu.Unlock()
		close(until)
	}
}

// The ghost of an attempt must not take what is reserved for its waiter.
func TestAfterAnAttemptWithoutAnAnswerTheWaiterHasAnotherName(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Hour)
		got := make(chan *locker.Lock, 1)
		go func() {
			l, err := c.Lock(t.Context(), "key", locker.WithWait(time.Minute))
			if err != nil {
				t.Errorf("Lock = %v", err)
			}
			got <- l
		}()
		time.Sleep(time.Second) // its watch is active
		over := s.hung()
		time.Sleep(5 * time.Second)
		over()
		s.mu.Lock()
		silent := s.acquires[len(s.acquires)-1].Waiter
		s.mu.Unlock()
		time.Sleep(10 * time.Second)
		s.mu.Lock()
		after := s.acquires[len(s.acquires)-1].Waiter
		names := map[string]bool{}
		for _, req := range s.acquires {
			names[req.Waiter] = true
		}
		s.mu.Unlock()
		if after == "" || after == silent || len(names) < 3 { // none at first, one before, and another after
			t.Errorf("the waiter is %q after %q; names %v", after, silent, names)
		}
		s.store.Delete("key")
		mustUnlock(t, <-got)
	})
}

// So it is when the client library has given up an attempt, sooner than the Client would have.
func TestAfterATimeOutOfTheLibraryTheWaiterHasAnotherName(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Hour)
		var wg sync.WaitGroup
		wg.Go(func() {
			if l, err := c.Lock(t.Context(), "key", locker.WithWait(time.Minute)); err != nil {
				t.Errorf("Lock = %v", err)
			} else {
				mustUnlock(t, l)
			}
		})
		time.Sleep(time.Second) // its watch is active
		var silent []string
		s.mu.Lock()
		s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			s.mu.Lock()
			silent = append(silent, s.acquires[len(s.acquires)-1].Waiter)
			s.onAcquire = nil
			s.mu.Unlock()
			time.Sleep(300 * time.Millisecond)
			return contract.Lease{}, os.ErrDeadlineExceeded
		}
		s.mu.Unlock()
		time.Sleep(20 * time.Second)
		s.mu.Lock()
		after := s.acquires[len(s.acquires)-1].Waiter
		s.mu.Unlock()
		if len(silent) != 1 || silent[0] == "" || after == "" || after == silent[0] {
			t.Errorf("the waiter is %q after %q; want another name", after, silent)
		}
		s.store.Delete("key")
		wg.Wait()
	})
}

// The message of an attempt that was given up may arrive last of all, when its cleanup has been answered.
func TestAnOlderAttemptThatArrivesLateGetsNoReservation(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const ttl = 30 * time.Second
		s.store.Set("key", "other", time.Hour)
		got := make(chan *locker.Lock, 1)
		go func() {
			l, err := c.Lock(t.Context(), "key", locker.WithTTL(ttl), locker.WithWait(time.Minute))
			if err != nil {
				t.Errorf("Lock = %v", err)
			}
			got <- l
		}()
		time.Sleep(time.Second) // its watch is active
		over := s.hung()
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		var older contract.Request // the last one that names the waiter
		for _, req := range s.acquires {
			if req.Waiter != "" {
				older = req
			}
		}
		s.mu.Unlock()
		over()
		time.Sleep(20 * time.Second)
		arrived := false
		s.mu.Lock()
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if lease, err := s.Locker.Acquire(context.WithoutCancel(t.Context()), older); !errors.Is(err, locker.ErrHeld) {
				t.Errorf("the older attempt gets %v, %v; want what is reserved for the newer one held", lease, err)
			}
			arrived = true
			return next()
		}
		s.mu.Unlock()
		released := time.Now()
		if ok, err := s.store.DeleteIf(t.Context(), "key", "other"); !ok || err != nil {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
		l := <-got
		s.mu.Lock()
		s.onAcquire = nil
		s.mu.Unlock()
		if took := time.Since(released); took > time.Second || !arrived || older.Waiter == "" {
			t.Errorf("the newer attempt has the lock %v after the release; the older one, of waiter %q, has arrived: %v", took, older.Waiter, arrived)
		}
		if list, err := s.store.Inspect(t.Context(), "key"); err != nil || list.Waiting > 0 {
			t.Errorf("Inspect = %+v, %v; want nobody in the queue", list, err)
		}
		mustUnlock(t, l)
	})
}

func TestACallLeavesFewAttemptsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		over := s.hung()
		_, err := c.Lock(t.Context(), "key", locker.WithWait(time.Hour), locker.WithTTL(time.Second))
		mustMatch(t, err, locker.ErrWaitLimit)
		mustNotMatch(t, err, locker.ErrHeld)
		if acquires, _, _, _ := s.asked(); acquires != 8 {
			t.Errorf("%d attempts were left; want 8", acquires)
		}
		over()
	})
}

// A server that is far away answers each attempt after 5 s.
func TestASlowStoreIsGivenTimeToAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			time.Sleep(5 * time.Second)
			return next()
		}
		for i, want := range []int{3, 1} { // after 2, 4 and 8 s; then the Client knows
			before, _, _, _ := s.asked()
			l, err := c.Lock(t.Context(), "key", locker.WithWait(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			if after, _, _, _ := s.asked(); after-before != want {
				t.Errorf("Lock %d made %d attempts; want %d", i, after-before, want)
			}
			mustUnlock(t, l)
			time.Sleep(time.Minute)
		}
	})
}

func TestAMinimumHoldDoesNotMakeAnAttemptLonger(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		over := s.hung()
		began := time.Now()
		_, err := c.TryLock(t.Context(), "key", locker.WithTTL(time.Second), locker.WithMinHold(14*time.Minute))
		if took := time.Since(began); err == nil || took < time.Second || took > 1010*time.Millisecond {
			t.Errorf("TryLock = %v after %v", err, took)
		}
		over()
		time.Sleep(time.Hour)
	})
}

func TestCallsWithACtxThatCantEndDoThoughTheLibraryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		c := locker.New(unprompt{s})
		l := mustLock(t, c, "key")
		until := make(chan struct{})
		s.faults.Set(backendtest.ExpireIf, backendtest.Stall(until, nil))
		s.faults.Set(backendtest.DeleteIf, backendtest.Stall(until, nil))
		began := time.Now()
		err := l.Extend(context.Background(), 10*time.Second)
		if took := time.Since(began); err == nil || took > 10*time.Second+100*time.Millisecond {
			t.Errorf("Extend = %v after %v", err, took)
		}
		mustNotMatch(t, err, context.DeadlineExceeded)
		s.faults.Set(backendtest.SetNX, nil)
		l = mustLock(t, c, "another")
		began = time.Now()
		err = l.Unlock(context.Background())
		if took := time.Since(began); err == nil || took > 3*time.Second {
			t.Errorf("Unlock = %v after %v", err, took)
		}
		s.faults.Clear()
		close(until)
		time.Sleep(time.Minute)
	})
}

// A Locker whose calls end by themselves is called on the goroutine of the caller. The ctx has a
// deadline all the same, also for a library that asks for nothing else.
func TestAnAttemptOnTheGoroutineOfItsCallerEndsByItself(t *testing.T) {
	for name, hang := range map[string]func(ctx context.Context){
		"at the end of its ctx": func(ctx context.Context) { <-ctx.Done() },
		"at the deadline":       func(ctx context.Context) { end, _ := ctx.Deadline(); time.Sleep(time.Until(end)) },
		"later":                 func(ctx context.Context) { end, _ := ctx.Deadline(); time.Sleep(time.Until(end) + prompt.Overrun) },
		"after the func": func(ctx context.Context) {
			ended := make(chan struct{})
			context.AfterFunc(ctx, func() { close(ended) })
			<-ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				s.onAcquire = func(ctx context.Context, _ func() (contract.Lease, error)) (contract.Lease, error) {
					if ctx.Err() != nil {
						t.Errorf("the ctx has ended before: %v", ctx.Err())
					}
					hang(ctx)
					return contract.Lease{}, context.DeadlineExceeded
				}
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Millisecond)
						began := time.Now()
						_, err := c.TryLock(context.Background(), "key")
						took := time.Since(began)
						if err == nil || took < locker.DefaultTTL/2 || took > locker.DefaultTTL+2*time.Second {
							t.Errorf("TryLock = %v after %v", err, took)
						}
						mustNotMatch(t, err, context.DeadlineExceeded, locker.ErrHeld)
					})
				}
				all.Wait()
			})
		})
	}
}
