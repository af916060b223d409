package locker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func TestAFreeLockCostsOneAcquireAndOneRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		mustUnlock(t, mustLock(t, c, "key"))
		acquires, extends, releases, watches := s.asked()
		if acquires != 1 || extends != 0 || releases != 1 || watches != 0 {
			t.Errorf("%d acquires, %d extends, %d releases, %d watches", acquires, extends, releases, watches)
		}
	})
}

func TestAWaiterIsWokenByTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		holder := locker.New(s) // another Client: only the store reports its release
		held := mustLock(t, holder, "key")
		got := make(chan *locker.Lock)
		go func() { got <- mustLock(t, c, "key") }()
		synctest.Wait()
		if acquires, _, _, watches := s.asked(); acquires != 3 || watches != 1 {
			t.Errorf("%d acquires and %d watches; want one of the holder, one before the watch and one after", acquires, watches)
		}
		released := time.Now()
		mustUnlock(t, held)
		l := <-got
		if waited := time.Since(released); waited != 0 {
			t.Errorf("the waiter got the lock %v after the release; want at once", waited)
		}
		mustUnlock(t, l)
	})
}

func TestAReleaseBetweenTheAttemptAndTheWatchIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		held := mustLock(t, locker.New(s), "key")
		s.onWatch = func(ctx context.Context) error {
			mustUnlock(t, held)
			return nil // it never wakes a waiter
		}
		began := time.Now()
		l := mustLock(t, c, "key")
		if took := time.Since(began); took != 0 {
			t.Errorf("Lock took %v; want no pause", took)
		}
		mustUnlock(t, l)
	})
}

func TestAReleaseAtTheMomentTheWatchFailsWakesTheHead(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		held := mustLock(t, c, "key")
		s.onWatch = func(context.Context) error {
			time.Sleep(time.Second) // until the head sleeps
			mustUnlock(t, held)
			return errors.ErrUnsupported
		}
		began := time.Now()
		l := mustLock(t, c, "key", locker.WithBackoff(func(int, float64) time.Duration { return time.Hour }))
		if took := time.Since(began); took != time.Second {
			t.Errorf("Lock took %v; the lock was released after 1s", took)
		}
		mustUnlock(t, l)
	})
}

func TestAWatchThatIsUnsupportedWakesNobody(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second} { // the answer may come before the head sleeps, or while it does
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.store.Set("key", "other", time.Minute)
			s.onWatch = func(context.Context) error {
				time.Sleep(after)
				return errors.ErrUnsupported
			}
			mustUnlock(t, mustLock(t, c, "key", locker.WithBackoff(func(int, float64) time.Duration { return time.Hour })))
			if acquires, _, _, _ := s.asked(); acquires != 2 {
				t.Errorf("%d attempts; want the first, and one at the end of the lease", acquires)
			}
		})
	}
}

func TestALostWakeUpDelaysAWaiterByOnePauseAtMost(t *testing.T) {
	for waits, limit := range map[time.Duration]time.Duration{ // a quarter of the wait, within limits
		500 * time.Millisecond: 250 * time.Millisecond,
		10 * time.Second:       2500 * time.Millisecond,
		time.Minute:            6 * time.Second,
	} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			held := mustLock(t, locker.New(s), "key")
			s.onWatch = func(ctx context.Context) error { return nil }
			time.AfterFunc(waits, func() { mustUnlock(t, held) })
			began := time.Now()
			l := mustLock(t, c, "key")
			if late := time.Since(began) - waits; late < 0 || late > limit {
				t.Errorf("granted %v after the release, which came %v after Lock was called; want at most %v", late, waits, limit)
			}
			mustUnlock(t, l)
		})
	}
}

// From the fourth position of a store's queue on, the pause is 2 s times the position, and 15 s at
// most. It is the position at the last attempt of the waiter, which may have moved up since.
func TestALostWakeUpDelaysAWaiterFarBackByThePauseOfItsPosition(t *testing.T) {
	for position, limit := range map[int]time.Duration{
		4: 8 * time.Second, 6: 12 * time.Second, 7: 14 * time.Second, 8: 15 * time.Second, 40: 15 * time.Second,
	} {
		bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
			const stay = 90 * time.Second
			held := mustLock(t, locker.New(s.Locker), "key")
			var ahead sync.WaitGroup
			for range position - 1 {
				ahead.Go(func() {
					_, err := locker.New(s.Locker).Lock(t.Context(), "key", locker.WithWait(stay))
					mustMatch(t, err, locker.ErrWaitLimit)
				})
				synctest.Wait()
			}
			var attempts []time.Time
			s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				attempts = append(attempts, time.Now())
				return next()
			}
			var released time.Time
			time.AfterFunc(stay+time.Millisecond, func() {
				released = time.Now()
				mustUnlock(t, held)
			})
			l := mustLock(t, locker.New(deaf{s}), "key")
			ahead.Wait()
			if late := time.Since(released); late < 0 || late > limit {
				t.Errorf("from position %d: granted %v after the release; want at most %v", position, late, limit)
			}
			for i := 2; i < len(attempts); i++ { // the first attempt takes no position, the second takes one
				if pause := attempts[i].Sub(attempts[i-1]); pause < limit/2 || pause > limit {
					t.Errorf("at position %d: attempt %d comes after %v; want a pause from half of %v up to it", position, i+1, pause, limit)
				}
			}
			mustUnlock(t, l)
		})
	}
}

// deaf takes a position in the queue of the store, and drops every wake-up.
type deaf struct{ *spy }

func (d deaf) Watch(ctx context.Context, key, waiter string, _ func()) error {
	return d.spy.Watch(ctx, key, waiter, func() {})
}

func TestAWaiterTakesOverWhenTheLeaseOfADeadHolderEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "dead", 1700*time.Millisecond)
		began := time.Now()
		l := mustLock(t, c, "key")
		if took := time.Since(began) - 1700*time.Millisecond; took < 0 || took > 2*time.Millisecond {
			t.Errorf("granted %v after the end of the lease; want at most 2ms", took)
		}
		mustUnlock(t, l)
	})
}

func TestEachAttemptHasATokenOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", 2*time.Second)
		mustUnlock(t, mustLock(t, c, "key"))
		seen := map[string]bool{}
		for i, req := range s.acquires {
			if seen[req.Token] || len(req.Token) < 26 {
				t.Errorf("token %q: used before: %v", req.Token, seen[req.Token])
			}
			seen[req.Token] = true
			if i > 0 && req.Waiter == "" || i > 1 && req.Waiter != s.acquires[1].Waiter || i == 0 && req.Waiter != "" || seen[req.Waiter] {
				t.Errorf("attempt %d has waiter %q; want none before the watch, then always the same, and no token", i+1, req.Waiter)
			}
		}
		if len(s.acquires) < 4 {
			t.Errorf("%d attempts; the test needs 4 at least", len(s.acquires))
		}
	})
}

func TestWaitersOfOneClientStandInLineAndOnlyTheHeadMakesAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const n = 20
		held := mustLock(t, c, "key")
		var order []int
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				l := mustLock(t, c, "key")
				order = append(order, i) // only the holder gets here
				mustUnlock(t, l)
			})
			synctest.Wait()
		}
		if acquires, _, _, watches := s.asked(); acquires != 3 || watches != 1 {
			t.Errorf("%d acquires and %d watches by the holder and %d waiters", acquires, watches, n)
		}
		mustUnlock(t, held)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != n {
			t.Errorf("granted in the order %v; want that of the calls", order)
		}
		// One successful attempt for each lock, and two of the head that find it held. The Client's own
		// releases cause no other.
		if acquires, _, _, _ := s.asked(); acquires != n+3 {
			t.Errorf("%d acquires for %d locks", acquires, n+1)
		}
	})
}

func TestAWaiterWhoseCtxEndsLeavesTheLineWithoutDisturbingIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		held := mustLock(t, c, "key")
		var cancels []context.CancelFunc
		errs := make([]chan error, 5)
		for i := range errs {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			errs[i] = make(chan error, 1)
			go func() {
				l, err := c.Lock(ctx, "key")
				if err == nil {
					err = l.Unlock(t.Context())
				}
				errs[i] <- err
			}()
			synctest.Wait()
		}
		cancels[0]() // the head
		cancels[2]() // a waiter behind it
		for _, i := range []int{0, 2} {
			err := <-errs[i]
			mustMatch(t, err, context.Canceled, locker.ErrHeld)
			var h *locker.HeldError
			if !errors.As(err, &h) || h.Key != "key" || h.Left <= 0 {
				t.Errorf("%v has no HeldError with the key and the rest of the lease", err)
			}
		}
		mustUnlock(t, held)
		for _, i := range []int{1, 3, 4} {
			if err := <-errs[i]; err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		}
		for _, cancel := range cancels {
			cancel()
		}
	})
}

func TestHeldErrorHasThePositionInLine(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		held := mustLock(t, c, "key")
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				_, err := c.Lock(t.Context(), "key", locker.WithWait(time.Duration(9-i)*time.Second))
				var h *locker.HeldError
				if !errors.As(err, &h) || h.Position != i+1 {
					t.Errorf("waiter %d: %+v; want its position", i+1, h)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		mustUnlock(t, held)
	})
}

func TestTheErrorOfAWaitMatchesTheReasonForItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Minute)
		deadline, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		caused, cancelCause := context.WithCancelCause(t.Context())
		defer cancelCause(nil)
		why := errors.New("why")
		for _, w := range []struct {
			name     string
			ctx      context.Context
			opts     []locker.Option
			takes    time.Duration
			matches  []error
			excludes []error
			kind     string
		}{
			{"deadline", deadline, nil, time.Second, []error{context.DeadlineExceeded, locker.ErrHeld},
				[]error{locker.ErrWaitLimit, locker.ErrLost}, "timeout"},
			{"wait limit", t.Context(), []locker.Option{locker.WithWait(time.Second)}, time.Second,
				[]error{locker.ErrWaitLimit, locker.ErrHeld}, []error{context.DeadlineExceeded, context.Canceled}, "wait_limit"},
			{"attempts", t.Context(), []locker.Option{locker.WithAttempts(1)}, 0, []error{locker.ErrHeld},
				[]error{locker.ErrWaitLimit}, "held"},
			{"cause", caused, nil, time.Second, []error{context.Canceled, why, locker.ErrHeld},
				[]error{locker.ErrWaitLimit}, "canceled"},
		} {
			if w.name == "cause" {
				time.AfterFunc(time.Second, func() { cancelCause(why) })
			}
			began := time.Now()
			_, err := c.Lock(w.ctx, "key", w.opts...)
			if err == nil {
				t.Fatalf("%s: granted", w.name)
			}
			mustMatch(t, err, w.matches...)
			mustNotMatch(t, err, w.excludes...)
			if kind := (&locker.Error{Err: err}).ErrorType(); kind != w.kind {
				t.Errorf("%s: error type %q, want %q", w.name, kind, w.kind)
			}
			if took := time.Since(began); took != w.takes {
				t.Errorf("%s: took %v, want %v", w.name, took, w.takes)
			}
		}
	})
}

func TestWithAttemptsLimitsTheAttemptsAndTheErrorCountsThem(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Minute)
		for n := 1; n <= 5; n++ {
			before, _, _, _ := s.asked()
			_, err := c.Lock(t.Context(), "key", locker.WithAttempts(n))
			after, _, _, _ := s.asked()
			var h *locker.HeldError
			if !errors.As(err, &h) || h.Attempts != n || after-before != n || h.Left <= 0 {
				t.Errorf("WithAttempts(%d): %d attempts, error %+v", n, after-before, h)
			}
		}
	})
}

func TestAnErrorThatWrapsErrHeldMakesTheWaitGoOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		words := fmt.Errorf("session 7 is in the way: %w", locker.ErrHeld)
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if len(s.acquires) < 3 {
				return contract.Lease{}, words
			}
			return next()
		}
		mustUnlock(t, mustLock(t, c, "key"))
		if acquires, _, _, _ := s.asked(); acquires != 3 {
			t.Errorf("%d attempts; want 3", acquires)
		}
		s.acquires = nil
		_, err := c.Lock(t.Context(), "key", locker.WithAttempts(2))
		var held *locker.HeldError
		if !errors.As(err, &held) || held.Key != "key" || held.Attempts != 2 || !errors.Is(err, words) {
			t.Errorf("error %+v; want a HeldError after 2 attempts that has what the Locker said", err)
		}
	})
}

func TestALossFromAcquireEndsTheWaitUnchanged(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		lost := locker.Lost(contract.Lease{Key: "key"})
		s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, lost
		}
		_, err := c.Lock(t.Context(), "key")
		mustMatch(t, err, lost)
		mustNotMatch(t, err, locker.ErrHeld)
		if acquires, _, _, _ := s.asked(); acquires != 1 {
			t.Errorf("%d attempts; want 1", acquires)
		}
	})
}

func TestAGrantHasItsAttemptsAndContention(t *testing.T) {
	patient := locker.WithBackoff(func(int, float64) time.Duration { return time.Minute })
	for _, c := range []struct {
		name      string
		occupied  bool // by another process, for a second
		ctx       func(context.Context) context.Context
		attempts  int
		contended bool
	}{
		{name: "a free lock", attempts: 1},
		{name: "a held lock: the first, when the watch is active, and at the end of the lease", occupied: true, attempts: 3, contended: true},
		{name: "with an owner: one attempt comes before the line", occupied: true, attempts: 3, contended: true,
			ctx: func(ctx context.Context) context.Context { return locker.ContextWithOwner(ctx, "job 7") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var told grants
			bubble(t, func(t *testing.T, s *spy, locks *locker.Client) {
				if c.occupied {
					s.store.Set("key", "other", time.Second)
				}
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(ctx)
				}
				l, err := locks.Lock(ctx, "key", patient)
				if err != nil {
					t.Fatal(err)
				}
				acquires, _, _, _ := s.asked()
				if call := told.noted()[0]; call.attempts != c.attempts || acquires != c.attempts || call.contended != c.contended {
					t.Errorf("%d attempts of %d, contended: %v; want %d, %v",
						call.attempts, acquires, call.contended, c.attempts, c.contended)
				}
				mustUnlock(t, l)
			}, locker.WithMiddleware(told.around))
		})
	}
}

func TestACallThatStoodInLineWasContended(t *testing.T) {
	var told grants
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		head := make(chan struct{})
		s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			<-head
			return next()
		}
		for range 2 {
			go func() {
				l, err := c.Lock(t.Context(), "key")
				if err != nil {
					t.Error(err)
				} else {
					mustUnlock(t, l)
				}
			}()
			synctest.Wait()
		}
		close(head)
		time.Sleep(time.Minute)
		calls := told.noted()
		if len(calls) != 2 {
			t.Fatalf("%d calls were granted the lock; want 2", len(calls))
		}
		if calls[0].attempts != 1 || calls[0].contended {
			t.Errorf("the first call: %d attempts, contended: %v; want 1, false", calls[0].attempts, calls[0].contended)
		}
		if calls[1].attempts < 1 || !calls[1].contended { // its first attempt may come just before the first call unlocks
			t.Errorf("the second call: %d attempts, contended: %v; want true", calls[1].attempts, calls[1].contended)
		}
	}, locker.WithMiddleware(told.around))
}

func TestAnErrorSaysAfterHowManyAttempts(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Minute)
		shared := &locker.Error{Op: "acquire", Key: "key", Err: errors.New("down")}
		for _, last := range []error{shared, errors.New("down")} {
			made := 0
			s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				if made++; made == 3 {
					return contract.Lease{}, last
				}
				return next()
			}
			_, err := c.Lock(t.Context(), "key")
			var e *locker.Error
			if !errors.As(err, &e) || e.Attempts != 3 {
				t.Errorf("%#v; want Attempts 3", err)
			}
		}
		if shared.Attempts != 0 {
			t.Error("the count was written into the error of the Locker, which others may have as well")
		}
	})
}

func TestAGrantThatComesTooLateIsReleased(t *testing.T) {
	for name, late := range map[string]func(cancel context.CancelFunc){
		"the ctx has ended": func(cancel context.CancelFunc) { cancel() },
		// before the limit of the attempt, which is the TTL
		"the lease has ended": func(context.CancelFunc) { time.Sleep(locker.DefaultTTL - 50*time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
					lease, err := next()
					late(cancel)
					return lease, err
				}
				seen := &outermost{}
				_, err := locker.New(s, locker.WithMiddleware(seen.around)).Lock(ctx, "key")
				if err == nil || seen.err == nil {
					t.Errorf("Lock = %v, and middleware saw %v", err, seen.err)
				}
				time.Sleep(time.Second)
				s.mustBeFree(t, "key")
			})
		})
	}
}

// TestAGrantThatComesTooLateIsReleasedAlthoughAnotherReleaseHangs is about a release that gets no
// answer and is repeated. It must not keep back the release of a lease that the store has just
// granted.
func TestAGrantThatComesTooLateIsReleasedAlthoughAnotherReleaseHangs(t *testing.T) {
	for name, waits := range map[string]bool{"the caller still waits": true, "the caller has gone": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
				stuck := &stuckRelease{spy: s}
				c := locker.New(stuck)
				l, err := c.Lock(t.Context(), "other", locker.WithTTL(10*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				go func() { _ = l.Unlock(t.Context()) }()
				for stuck.calls.Load() < 3 { // by the third one, the store counts as silent
					time.Sleep(time.Millisecond)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
					lease, err := next()
					cancel()
					if !waits {
						time.Sleep(10 * time.Millisecond)
					}
					return lease, err
				}
				_, err = c.Lock(ctx, "key", locker.WithTTL(400*time.Millisecond))
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Lock = %v", err)
				}
				time.Sleep(20 * time.Millisecond)
				s.mustBeFree(t, "key")
				time.Sleep(time.Minute) // until nothing repeats the other release
			})
		})
	}
}

// stuckRelease is a Locker whose Release of the key "other" hangs.
type stuckRelease struct {
	*spy
	calls atomic.Int32
}

func (s *stuckRelease) Release(ctx context.Context, lease contract.Lease) error {
	if lease.Key != "other" {
		return s.spy.Release(ctx, lease)
	}
	s.calls.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// outermost is middleware that notes what Acquire returned.
type outermost struct {
	locker.Locker
	err error
}

func (o *outermost) around(next locker.Locker) locker.Locker { o.Locker = next; return o }

func (o *outermost) Acquire(ctx context.Context, req contract.Request) (lease contract.Lease, err error) {
	lease, o.err = o.Locker.Acquire(ctx, req)
	return lease, o.err
}

func TestAnErrorSaysWhetherTheLockWasContended(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		attempt := make(chan error)
		s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, <-attempt
		}
		errs := make(chan error)
		for range 2 {
			go func() { _, err := c.Lock(t.Context(), "key"); errs <- err }()
			synctest.Wait()
		}
		for _, contended := range []bool{false, true} { // the second call stood in line
			attempt <- errors.New("down")
			var e *locker.Error
			if err := <-errs; !errors.As(err, &e) || e.Contended != contended || e.Attempts != 1 {
				t.Errorf("%+v; want contended: %v", err, contended)
			}
		}
	})
}

func TestDoSaysThatItsHoldEndsWithTheWork(t *testing.T) {
	var told grants
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		if err := c.Do(t.Context(), "key", func(context.Context, *locker.Lock) error { return nil }); err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, mustLock(t, c, "key"))
		if calls := told.noted(); !calls[0].scoped || calls[1].scoped {
			t.Errorf("Scoped: %v under Do, %v under Lock", calls[0].scoped, calls[1].scoped)
		}
	}, locker.WithMiddleware(told.around))
}

func TestACtxThatIsDoneSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Lock(ctx, "key")
		mustMatch(t, err, context.Canceled)
		_, err = c.TryLock(ctx, "key")
		mustMatch(t, err, context.Canceled)
		if acquires, _, _, _ := s.asked(); acquires != 0 {
			t.Errorf("%d acquires", acquires)
		}
	})
}

func TestAnErrorOfTheStoreEndsTheWaitAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Minute)
		time.AfterFunc(time.Second, func() { s.faults.Set(backendtest.SetNX, backendtest.Fail) })
		began := time.Now()
		_, err := c.Lock(t.Context(), "key")
		mustMatch(t, err, backendtest.ErrInjected)
		mustNotMatch(t, err, locker.ErrHeld, locker.ErrLost)
		var e *locker.Error
		if !errors.As(err, &e) || e.Op != "acquire" || e.Key != "key" {
			t.Errorf("%v names neither operation nor key", err)
		}
		if took := time.Since(began); took > 1300*time.Millisecond {
			t.Errorf("Lock failed after %v", took)
		}
	})
}

func TestAPermanentErrorOfTheWatchEndsTheWaitAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Minute)
		noPermission := errors.New("not permitted")
		s.onWatch = func(context.Context) error { return noPermission }
		began := time.Now()
		_, err := c.Lock(t.Context(), "key")
		mustMatch(t, err, noPermission)
		mustNotMatch(t, err, locker.ErrHeld)
		if took := time.Since(began); took != 0 {
			t.Errorf("Lock failed after %v", took)
		}
		s.onWatch = func(ctx context.Context) error { time.Sleep(3 * time.Second); return noPermission }
		began = time.Now()
		_, err = c.Lock(t.Context(), "key")
		mustMatch(t, err, noPermission)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Lock failed after %v; the watch failed after 3s", took)
		}
	})
}

func TestALockIsGrantedAlthoughTheWatchHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onWatch = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s.store.Set("key", "other", 700*time.Millisecond)
		began := time.Now()
		l := mustLock(t, c, "key")
		if took := time.Since(began); took > 702*time.Millisecond {
			t.Errorf("Lock took %v; the lease of the holder ended after 700ms", took)
		}
		mustUnlock(t, l)
	})
}

func TestWaitersPollWithoutAWatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onWatch = func(context.Context) error { return fmt.Errorf("no wake-ups: %w", errors.ErrUnsupported) }
		s.store.Set("key", "other", time.Hour)
		_, err := c.Lock(t.Context(), "key", locker.WithWait(10*time.Second))
		mustMatch(t, err, locker.ErrWaitLimit, locker.ErrHeld)
		acquires, _, _, watches := s.asked()
		if acquires < 40 || acquires > 90 || watches != 1 {
			t.Errorf("%d acquires and %d watches in 10 s; want 40 to 90, and 1", acquires, watches)
		}
	})
}

func TestWithBackoffSetsThePauses(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onWatch = func(context.Context) error { return errors.ErrUnsupported }
		s.store.Set("key", "other", time.Hour)
		var asked []int
		backoff := func(attempt int, random float64) time.Duration {
			asked = append(asked, attempt)
			return time.Second
		}
		began := time.Now()
		_, err := c.Lock(t.Context(), "key", locker.WithBackoff(backoff), locker.WithAttempts(4))
		mustMatch(t, err, locker.ErrHeld)
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("4 attempts took %v, want 3s; Backoff was called for attempts %v", took, asked)
		}
	})
}

// A client library may ignore its ctx. An attempt that hangs there must not delay the caller, and
// must leave no lock behind.

func TestLockLeavesAnAttemptThatIgnoresItsCtx(t *testing.T) {
	for _, lateness := range []time.Duration{10 * time.Millisecond, 30 * time.Second} {
		for _, end := range []string{"ctx", "limit"} {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				s.faults.Set(backendtest.SetNX, backendtest.Late(time.Second+lateness))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				want, opts := context.DeadlineExceeded, []locker.Option{locker.WithTTL(time.Minute)}
				if end == "limit" {
					ctx, want = t.Context(), locker.ErrWaitLimit
					opts = append(opts, locker.WithWait(time.Second-100*time.Millisecond))
				}
				began := time.Now()
				_, err := c.Lock(ctx, "key", opts...)
				mustMatch(t, err, want)
				mustNotMatch(t, err, locker.ErrHeld) // the outcome is unknown: the lock may be ours
				if took := time.Since(began); took != time.Second {
					t.Errorf("%s: Lock returned after %v", end, took)
				}
				s.faults.Clear()
				time.Sleep(lateness + 5*time.Second)
				s.mustBeFree(t, "key")
			})
		}
	}
}

func TestAGrantJustAfterTheWaitLimitIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.SetNX, backendtest.Late(time.Second+50*time.Millisecond))
		l := mustLock(t, c, "key", locker.WithWait(time.Second)) // an attempt under way is given 100 ms more
		mustUnlock(t, l)
	})
}

func TestAGrantWhoseLeaseHasEndedIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onAcquire = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next()
			time.Sleep(2 * time.Second)
			return lease, err
		}
		_, err := c.Lock(t.Context(), "key", locker.WithTTL(time.Second))
		if err == nil || errors.Is(err, locker.ErrHeld) {
			t.Errorf("Lock = %v", err)
		}
	})
}

func TestTryLockMakesOneAttemptAndDoesNotQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		held := mustLock(t, c, "key")
		waiting := make(chan *locker.Lock)
		go func() { waiting <- mustLock(t, c, "key") }()
		synctest.Wait()
		before, _, _, _ := s.asked()
		_, err := c.TryLock(t.Context(), "key")
		var h *locker.HeldError
		if !errors.As(err, &h) || h.Attempts != 1 || h.Left <= 0 {
			t.Errorf("TryLock = %v, %+v", err, h)
		}
		if after, _, _, watches := s.asked(); after != before+1 || watches != 1 {
			t.Errorf("%d attempts, want 1; %d watches, want that of the waiter", after-before, watches)
		}
		mustUnlock(t, held)
		mustUnlock(t, <-waiting)
		l, err := c.TryLock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, l)
	})
}

func TestARequestWithAnOwnerMakesAnAttemptBeforeItJoinsALine(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		held := mustLock(t, c, "key")
		var others []chan *locker.Lock
		for _, owner := range []string{"", "a", "b"} {
			got := make(chan *locker.Lock)
			others = append(others, got)
			go func() {
				ctx := t.Context()
				if owner != "" {
					ctx = locker.ContextWithOwner(ctx, owner)
				}
				l, err := c.Lock(ctx, "key")
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			synctest.Wait()
		}
		owners := map[string]int{}
		for _, req := range s.acquires {
			owners[req.Owner]++
		}
		if owners["a"] < 1 || owners["b"] < 1 || c.Lines() != 1 {
			t.Errorf("attempts by owner: %v, %d keys waited for", owners, c.Lines())
		}
		mustUnlock(t, held)
		for range others { // in any order: each owner has a line of its own
			select {
			case l := <-others[0]:
				mustUnlock(t, l)
			case l := <-others[1]:
				mustUnlock(t, l)
			case l := <-others[2]:
				mustUnlock(t, l)
			}
		}
	})
}

func TestBadInputFailsBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for _, bad := range []struct {
			key  string
			opts []locker.Option
			says string
		}{
			{"", nil, "key is empty"},
			{strings.Repeat("x", 513), nil, "key of 513 bytes is over the limit of 512"},
			{"a\x00b", nil, "NUL at byte 1"},
			{"a\xffb", nil, "not valid UTF-8"},
			{"key", []locker.Option{locker.WithTTL(9 * time.Millisecond)}, "ttl 9ms is under the limit of 10ms"},
			{"key", []locker.Option{locker.WithTTL(-1)}, "ttl -1ns is under the limit of 10ms"},
			{"key", []locker.Option{locker.WithTTL(10*time.Millisecond + 1)}, "ttl 10.000001ms is not in whole milliseconds"},
			{"key", []locker.Option{locker.WithTTL(2 * time.Hour)}, "ttl 2h0m0s is over the store's limit of 1h0m0s (see memory.WithMaxTTL)"},
			{"key", []locker.Option{locker.WithWait(0)}, "wait limit 0s is not positive"},
			{"key", []locker.Option{locker.WithAttempts(0)}, "0 attempts: at least one is needed"},
			{"key", []locker.Option{nil}, "option is nil"},
			{"key", []locker.Option{locker.WithMaxHold(-time.Second)}, "maximum hold -1s is not positive"},
			{"key", []locker.Option{locker.WithBackoff(nil)}, "backoff is nil"},
		} {
			_, err := c.Lock(t.Context(), bad.key, bad.opts...)
			var typed *locker.Error
			if err == nil || !strings.Contains(err.Error(), bad.says) || !errors.As(err, &typed) || typed.ErrorType() != "invalid" {
				t.Errorf("Lock = %v, want: %s", err, bad.says)
			}
			mustNotMatch(t, err, locker.ErrHeld, locker.ErrLost)
		}
		s.mustBeFree(t, "key")
	})
	for _, bad := range []*locker.Client{
		locker.New(nil), locker.New(newSpy(), locker.WithTTL(0)), locker.New(newSpy(), locker.WithMiddleware(nil)),
		locker.New(newSpy(), locker.WithMaxHandovers(0)),
	} {
		for _, lock := range []func(context.Context, string, ...locker.Option) (*locker.Lock, error){bad.Lock, bad.TryLock} {
			if _, err := lock(t.Context(), "key"); err == nil {
				t.Error("a Client with bad options locks")
			}
		}
	}
}

// A TTL that is too long stays too long, so Lock fails at once in spite of WithWait.
func TestATTLOverTheLimitOfTheStoreFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, began := memory.New(), time.Now()
		c := locker.New(single.New(store), locker.WithTTL(time.Minute), locker.WithWait(time.Hour))
		const says = `ttl 1m0s is over the store's limit of 30s (see memory.WithMaxTTL)`
		_, err := c.Lock(t.Context(), "key")
		if want := `lockstep: acquire "key": ` + says; err == nil || err.Error() != want || time.Since(began) != 0 {
			t.Errorf("Lock = %v after %v, want %s", err, time.Since(began), want)
		}
		mustNotMatch(t, err, locker.ErrHeld, locker.ErrWaitLimit)
		l := mustLock(t, c, "key", locker.WithTTL(10*time.Second))
		err = l.Extend(t.Context(), time.Minute)
		if want := `lockstep: extend "key": ` + says; err == nil || err.Error() != want {
			t.Errorf("Extend = %v, want %s", err, want)
		}
		mustUnlock(t, l)
	})
}

// The Client keeps a line for 200 ms after its last waiter. A call that comes just as it ends joins
// that line or a new one.
func TestACallThatComesAsALineEndsIsWoken(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		other := locker.New(s)
		for range 100 {
			held := mustLock(t, other, "key")
			got := make(chan *locker.Lock)
			wait := func() { got <- mustLock(t, c, "key") }
			go wait()
			synctest.Wait()
			mustUnlock(t, held)
			mustUnlock(t, <-got)
			held = mustLock(t, other, "key")
			time.AfterFunc(200*time.Millisecond, wait)
			time.Sleep(200 * time.Millisecond)
			synctest.Wait()
			released := time.Now()
			mustUnlock(t, held)
			l := <-got
			if late := time.Since(released); late > 0 {
				t.Fatalf("granted %v after the release; want at once", late)
			}
			mustUnlock(t, l)
			time.Sleep(time.Second)
		}
	})
}

// A Locker that follows its ctx answers at the moment at which the Client sees the end of ctx.
func TestTheErrorHasTheCauseOfTheCtxWhicheverGoroutineSeesItsEndFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.SetNX, backendtest.Hang)
		for _, lock := range []func(context.Context, string, ...locker.Option) (*locker.Lock, error){c.Lock, c.TryLock} {
			for range 100 {
				ctx, cancel := context.WithCancelCause(t.Context())
				why := errors.New("the reason")
				time.AfterFunc(time.Second, func() { cancel(why) })
				_, err := lock(ctx, "key")
				mustMatch(t, err, why, context.Canceled)
			}
			for range 100 { // the Locker ends the ctx
				ctx, cancel := context.WithCancelCause(t.Context())
				why := errors.New("the reason")
				synctest.Wait() // a Lock whose ctx has ended does not wait for its attempt
				s.onAcquire = func(ctx context.Context, _ func() (contract.Lease, error)) (contract.Lease, error) {
					cancel(why)
					return contract.Lease{}, ctx.Err()
				}
				_, err := lock(ctx, "key")
				mustMatch(t, err, why, context.Canceled)
			}
			synctest.Wait()
			s.onAcquire = nil
		}
	})
}

func TestACtxThatEndsJustAfterTheWaitLimitIsWhyTheWaitIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			time.Sleep(3 * time.Second) // and ignores its ctx
			return next()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+50*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := c.Lock(ctx, "key", locker.WithWait(time.Second)) // an answer under way has 100 ms more
		mustMatch(t, err, context.DeadlineExceeded)
		mustNotMatch(t, err, locker.ErrWaitLimit)
		if took := time.Since(began); took != time.Second+50*time.Millisecond {
			t.Errorf("Lock took %v; want until the end of ctx", took)
		}
	})
}

func TestDoOfALockThatIsHeldDoesNoWork(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "other", time.Minute)
		err := c.Do(t.Context(), "key", func(context.Context, *locker.Lock) error {
			t.Error("the work was called without the lock")
			return nil
		}, locker.WithAttempts(1))
		mustMatch(t, err, locker.ErrHeld)
	})
}

// endsTheCtx is middleware that ends the ctx of the caller when the lock is granted.
type endsTheCtx struct {
	locker.Locker
	cancel context.CancelFunc
}

func (e endsTheCtx) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := e.Locker.Acquire(ctx, req)
	e.cancel()
	return lease, err
}

func TestALockGrantedAsItsCtxEndsIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		c := locker.New(s, locker.WithMiddleware(func(next locker.Locker) locker.Locker { return endsTheCtx{next, cancel} }))
		_, err := c.Lock(ctx, "key")
		mustMatch(t, err, context.Canceled)
		synctest.Wait()
		s.mustBeFree(t, "key")
	})
}

func TestTheErrorOfAWaitSaysWhyItEndedAndWhetherTheLockWasHeld(t *testing.T) {
	for says, set := range map[string]func(s *spy){
		`lockstep: lock "key": wait limit reached: no answer from the store to the last attempt; its outcome is unknown, and it is cleaned up in the background`: func(s *spy) {
			s.faults.Set(backendtest.SetNX, backendtest.Hang)
		},
		`lockstep: lock "key": wait limit reached: no answer from server 10.0.0.7:6379 to the last attempt; its outcome is unknown, and it is cleaned up in the background`: func(s *spy) {
			s.faults.Set(backendtest.SetNX, backendtest.Hang)
			s.endpoint = "10.0.0.7:6379"
		},
		`lockstep: lock "key": wait limit reached: no answer from file /srv/a b.db to the last attempt; its outcome is unknown, and it is cleaned up in the background`: func(s *spy) {
			s.faults.Set(backendtest.SetNX, backendtest.Hang)
			s.endpoint = "file /srv/a b.db"
		},
		`lockstep: lock "key": wait limit reached: no answer from the store to the last attempt; its outcome is unknown, and it is cleaned up in the background; before that broken pipe`: func(s *spy) {
			failed := false
			s.onAcquire = func(ctx context.Context, _ func() (contract.Lease, error)) (contract.Lease, error) {
				if !failed {
					failed = true
					return contract.Lease{}, errors.New("broken pipe")
				}
				<-ctx.Done()
				return contract.Lease{}, ctx.Err()
			}
		},
		`lockstep: lock "key": wait limit reached: no connection; the outcome of an earlier attempt is unknown, and it is cleaned up in the background`: func(s *spy) {
			failed := false
			s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
				if !failed {
					failed = true
					return contract.Lease{}, errors.New("broken pipe")
				}
				return contract.Lease{}, unsent{}
			}
		},
		`lockstep: lock "key": wait limit reached: no connection; before that held by someone else; free in 59s unless renewed`: func(s *spy) {
			held := false
			s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
				if !held {
					held = true
					return contract.Lease{}, &locker.HeldError{Key: "key", Left: time.Minute}
				}
				return contract.Lease{}, unsent{}
			}
			s.onWatching = func(wake func()) { wake() }
		},
		`lockstep: lock "key": wait limit reached: no connection`: func(s *spy) {
			s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
				return contract.Lease{}, unsent{}
			}
		},
		`lockstep: lock "key": wait limit reached: held by a value without expiry, which no lease wrote`: func(s *spy) { s.store.Set("key", "legacy", 0) },
		`lockstep: lock "key": wait limit reached: held by someone else; free in 59s unless renewed`:     func(s *spy) { s.store.Set("key", "other", time.Minute) },
		`lockstep: lock "key": wait limit reached: 2 of 3 votes`: func(s *spy) {
			s.onAcquire = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
				return contract.Lease{}, &locker.HeldError{Key: "key", Err: errors.New("2 of 3 votes")}
			}
		},
	} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			set(s)
			if _, err := c.Lock(t.Context(), "key", locker.WithWait(time.Second)); err == nil || err.Error() != says {
				t.Errorf("Lock = %v; want %s", err, says)
			}
		})
	}
}

// A call with an owner makes an attempt before it joins a line.
func TestTheEndOfAFirstAttemptWithAnOwnerSaysThatItsOutcomeIsUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Set(backendtest.SetNX, backendtest.Hang)
		const want = `lockstep: lock "key": wait limit reached: no answer from the store to the last attempt; ` +
			`its outcome is unknown, and it is cleaned up in the background`
		_, err := c.Lock(locker.ContextWithOwner(t.Context(), "job 7"), "key", locker.WithWait(time.Second))
		if err == nil || err.Error() != want {
			t.Errorf("Lock = %v; want %s", err, want)
		}
		mustMatch(t, err, locker.ErrWaitLimit)
		if c.Lines() != 0 {
			t.Error("the call has joined a line")
		}
	})
}

// A program may end a ctx of its own with ErrReleased. Then there is no hold to name in the text.
func TestACtxWithCauseErrReleasedOfNoHoldKeepsThatCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(locker.ErrReleased)
	_, err := locker.New(newSpy()).Lock(ctx, "key")
	mustMatch(t, err, context.Canceled, locker.ErrReleased)
	if want := `lockstep: lock "key": context canceled: lock released`; err == nil || err.Error() != want {
		t.Errorf("Lock = %v; want %s", err, want)
	}
}

func TestAForeignValueIsWaitedForAndOneOfAnotherTypeIsNot(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("key", "legacy", 0)
		_, err := c.TryLock(t.Context(), "key")
		mustMatch(t, err, locker.ErrHeld, locker.ErrForeignKey)
		time.AfterFunc(time.Second, func() { s.store.Delete("key") })
		mustUnlock(t, mustLock(t, c, "key"))
		s.store.SetOther("key")
		_, err = c.Lock(t.Context(), "key")
		mustMatch(t, err, locker.ErrForeignKey)
		mustNotMatch(t, err, locker.ErrHeld)
	})
}
