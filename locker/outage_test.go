package locker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// fault is an error of a store: permanent, not done or unknown.
type fault struct{ permanent, unsent bool }

func (f fault) Error() string   { return "the store fails" }
func (f fault) Permanent() bool { return f.permanent }
func (f fault) Unsent() bool    { return f.unsent }

// failUntil makes every attempt fail until end. It returns a func that lists the times of attempts.
func (s *spy) failUntil(end time.Time, err error) (attempts func() []time.Time) {
	var mu sync.Mutex
	var all []time.Time
	s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
		mu.Lock()
		all = append(all, time.Now())
		mu.Unlock()
		if time.Now().Before(end) {
			return contract.Lease{}, err
		}
		return next()
	}
	return func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func TestWithWaitOutlastsAnOutage(t *testing.T) {
	for name, err := range map[string]error{"unknown": fault{}, "not done": fault{unsent: true}} {
		for _, owner := range []string{"", "ann"} {
			t.Run(name+" "+owner, func(t *testing.T) {
				var told grants
				bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
					began := time.Now()
					attempts := s.failUntil(began.Add(1500*time.Millisecond), err)
					ctx := t.Context()
					if owner != "" {
						ctx = locker.ContextWithOwner(ctx, owner)
					}
					l, err := c.Lock(ctx, "key", locker.WithWait(5*time.Second))
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 2500*time.Millisecond {
						t.Errorf("Lock took %v; the outage lasts 1.5 s, and the longest pause is 1 s", took)
					}
					if call := told.noted()[0]; call.contended || call.attempts != len(attempts()) {
						t.Errorf("the call is %+v after %d attempts; want all counted, and contended false", call, len(attempts()))
					}
					s.mu.Lock()
					tokens := map[string]bool{}
					for _, req := range s.acquires {
						tokens[req.Token] = true
					}
					if len(tokens) != len(s.acquires) {
						t.Errorf("%d attempts have %d tokens", len(s.acquires), len(tokens))
					}
					s.mu.Unlock()
					mustUnlock(t, l)
				}, locker.WithMiddleware(told.around))
			})
		}
	}
}

// A lease may end between the strategy and the Client, for instance when the wall clock is set.
func TestWithWaitOutlastsAGrantThatComesTooLate(t *testing.T) {
	for _, owner := range []string{"", "ann"} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				lease, err := next()
				if len(s.acquires) == 1 {
					time.Sleep(time.Until(lease.Expires))
				}
				return lease, err
			}
			ctx := locker.ContextWithOwner(t.Context(), owner)
			l, err := c.Lock(ctx, "key", locker.WithWait(time.Minute), locker.WithTTL(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			if len(s.acquires) != 2 {
				t.Errorf("owner %q: %d attempts, want 2", owner, len(s.acquires))
			}
			mustUnlock(t, l)
			s.acquires = nil
			_, err = c.Lock(ctx, "key", locker.WithTTL(time.Second))
			if err == nil || !strings.Contains(err.Error(), "so late that the lease had ended") {
				t.Errorf("without WithWait: %v", err)
			}
		})
	}
}

func TestWithoutWithWaitTheFirstErrorOfTheStoreEndsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		attempts := s.failUntil(time.Now().Add(time.Second), fault{})
		for name, opts := range map[string][]locker.Option{"plain": nil, "attempts": {locker.WithAttempts(9)}} {
			before := len(attempts())
			_, err := c.Lock(t.Context(), "key", opts...)
			mustMatch(t, err, fault{})
			mustNotMatch(t, err, locker.ErrHeld, locker.ErrWaitLimit)
			if n := len(attempts()) - before; n != 1 {
				t.Errorf("%s: %d attempts; want 1", name, n)
			}
		}
	})
}

func TestAPermanentErrorEndsTheWaitUnderWithWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		attempts := s.failUntil(time.Now().Add(time.Second), fault{permanent: true})
		_, err := c.Lock(t.Context(), "key", locker.WithWait(time.Minute))
		mustMatch(t, err, fault{permanent: true})
		mustNotMatch(t, err, locker.ErrWaitLimit)
		if n := len(attempts()); n != 1 {
			t.Errorf("%d attempts; want 1", n)
		}
	})
}

func TestAWaitLimitReachedInAnOutageCarriesTheLastCause(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.failUntil(time.Now().Add(time.Hour), fault{})
		_, err := c.Lock(t.Context(), "key", locker.WithWait(time.Second))
		mustMatch(t, err, locker.ErrWaitLimit, fault{})
		mustNotMatch(t, err, locker.ErrHeld, context.DeadlineExceeded)
		if want := `lockstep: lock "key": wait limit reached: the store fails`; err.Error() != want {
			t.Errorf("%q; want %q", err, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Lock(ctx, "key", locker.WithWait(time.Minute))
		mustMatch(t, err, context.DeadlineExceeded, fault{})
		mustNotMatch(t, err, locker.ErrHeld, locker.ErrWaitLimit)
	})
}

// An attempt that fails does not say whether the lock is held. The last answer does.
func TestAWaitLimitMatchesErrHeldIfTheLastAnswerSaidSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, locker.New(s), "key", locker.WithTTL(time.Hour))
		down := time.Now().Add(time.Second)
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if time.Now().Before(down) {
				return next()
			}
			return contract.Lease{}, fault{}
		}
		_, err := c.Lock(t.Context(), "key", locker.WithWait(20*time.Second))
		mustMatch(t, err, locker.ErrWaitLimit, locker.ErrHeld, fault{})

		began := time.Now()
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if time.Since(began) > 5*time.Second {
				return next()
			}
			return contract.Lease{}, fault{}
		}
		_, err = c.Lock(t.Context(), "key", locker.WithWait(20*time.Second))
		mustMatch(t, err, locker.ErrWaitLimit, locker.ErrHeld)
		mustNotMatch(t, err, fault{}) // the store has answered since
		mustUnlock(t, l)
	})
}

func TestWithAttemptsCountsAttemptsThatFail(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, locker.New(s), "key", locker.WithTTL(time.Hour))
		answers := 0
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			if answers++; answers%2 == 0 {
				return next()
			}
			return contract.Lease{}, fault{}
		}
		_, err := c.Lock(t.Context(), "key", locker.WithWait(time.Hour), locker.WithAttempts(5))
		mustMatch(t, err, fault{})
		mustNotMatch(t, err, locker.ErrWaitLimit, locker.ErrHeld)
		if answers != 5 {
			t.Errorf("%d attempts, want 5", answers)
		}
		_, err = c.Lock(t.Context(), "key", locker.WithWait(time.Hour), locker.WithAttempts(5))
		mustMatch(t, err, locker.ErrHeld)
		mustNotMatch(t, err, locker.ErrWaitLimit, fault{})
		if answers != 10 {
			t.Errorf("%d attempts, want 10", answers)
		}
		mustUnlock(t, l)
	})
}

func TestAnAnswerResetsThePausesOfAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		attempts := s.failUntil(time.Now().Add(30*time.Second), fault{})
		mustUnlock(t, mustLock(t, c, "key", locker.WithWait(time.Minute)))
		first := attempts()
		if n := len(first); n < 30 || n > 150 {
			t.Errorf("%d attempts in 30 s; want 30 to 150, since pauses are drawn from 0 to 1 s", n)
		}
		for i := 1; i < len(first); i++ {
			if pause, most := first[i].Sub(first[i-1]), min(50*time.Millisecond<<min(i-1, 5), time.Second); pause > most {
				t.Errorf("pause %d is %v, want at most %v", i, pause, most)
			}
		}
		s.failUntil(time.Now().Add(25*time.Millisecond), fault{})
		began := time.Now()
		mustUnlock(t, mustLock(t, c, "key", locker.WithWait(time.Minute)))
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("Lock took %v in a second outage of 25 ms; want short pauses again", took)
		}
	})
}

// A store that is back wakes all waiters at one instant. Waiters whose last attempt failed ignore
// that, and end their pause first.
func TestWaitersAreSpreadOverASecondWhenTheStoreIsBack(t *testing.T) {
	const waiters = 1000 // so many that chance puts a fifth of them into one slot, and never a quarter
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var mu sync.Mutex
		var wakes []func()
		s.onWatching = func(wake func()) {
			mu.Lock()
			defer mu.Unlock()
			wakes = append(wakes, wake)
		}
		back := time.Now().Add(10 * time.Second)
		attempts := s.failUntil(back, fault{})
		time.AfterFunc(time.Until(back), func() {
			mu.Lock()
			defer mu.Unlock()
			for _, wake := range wakes {
				wake()
			}
		})
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() { mustUnlock(t, mustLock(t, c, fmt.Sprint("key", i), locker.WithWait(time.Minute))) })
		}
		wg.Wait()
		synctest.Wait()
		slots := map[time.Duration]int{}
		for _, at := range attempts() {
			if after := at.Sub(back); after >= 0 {
				slots[after/(100*time.Millisecond)]++
			}
		}
		for slot, n := range slots {
			if n > waiters/4 || slot > 9 {
				t.Errorf("%d of %d waiters made an attempt in slot %d of 100 ms; want a quarter at most, within 1 s", n, waiters, slot)
			}
		}
	})
}

func TestAWatchThatFailsDoesNotEndTheWaitUnderWithWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, locker.New(s), "key", locker.WithTTL(time.Hour))
		s.onWatch = func(context.Context) error { return fault{} }
		_, err := c.Lock(t.Context(), "key")
		mustMatch(t, err, fault{})

		failing := time.Now().Add(2 * time.Second)
		s.onWatch = func(context.Context) error {
			if time.Now().Before(failing) {
				return fault{}
			}
			s.mu.Lock()
			s.onWatch = nil
			s.mu.Unlock()
			return fault{}
		}
		got := make(chan *locker.Lock)
		go func() { got <- mustLock(t, c, "key", locker.WithWait(time.Hour)) }()
		time.Sleep(time.Minute)
		mustUnlock(t, l)
		released := time.Now()
		next := <-got
		if took := time.Since(released); took != 0 {
			t.Errorf("the waiter got the lock %v after the release; want at once, by a new watch", took)
		}
		mustUnlock(t, next)
		time.Sleep(time.Second) // the Client watches for a moment after its last lock

		l = mustLock(t, locker.New(s), "key", locker.WithTTL(time.Hour))
		s.onWatch = func(context.Context) error { return fault{permanent: true} }
		_, err = c.Lock(t.Context(), "key", locker.WithWait(time.Hour))
		mustMatch(t, err, fault{permanent: true})
		mustUnlock(t, l)
	})
}

// The value that an attempt with a lost reply has stored keeps the next one out until it is removed.
func TestWithWaitALockIsGrantedAfterAnAttemptThatLostItsReply(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.faults.Once(backendtest.SetNX, backendtest.LoseReply)
		s.faults.Once(backendtest.DeleteIf, backendtest.Fail, backendtest.Fail)
		l := mustLock(t, c, "key", locker.WithWait(5*time.Second), locker.WithTTL(time.Minute))
		mustUnlock(t, l)
	})
}
