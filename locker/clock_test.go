package locker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// In a synctest bubble times have no monotonic reading. The tests outside use the real clocks.

func TestTimesOfALeaseKeepTheirMonotonicReading(t *testing.T) {
	l, err := locker.New(single.New(memory.New())).Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock(t.Context())
	if err := l.Extend(t.Context(), 20*time.Second); err != nil {
		t.Fatal(err)
	}
	lease := l.Lease()
	for name, at := range map[string]time.Time{"Granted": lease.Granted, "Expires": lease.Expires} {
		if !strings.Contains(at.String(), " m=") {
			t.Errorf("%s has no monotonic reading: %v", name, at)
		}
	}
}

func TestALeaseEndsByWhicheverClockSaysSoFirst(t *testing.T) {
	var clock wallclock.Clock
	ended := locker.EndedBy(contract.Lease{Expires: time.Now().Add(time.Hour)}, &clock)
	if ended() {
		t.Error("Ended is true an hour before the end")
	}
	clock.Jump(time.Hour + time.Second) // the machine was suspended: its monotonic clock stood still
	if !ended() {
		t.Error("Ended is false after the end by the wall clock")
	}
	over := locker.EndedBy(contract.Lease{Expires: time.Now().Add(-time.Second)}, &clock)
	clock.Jump(-time.Hour) // the wall clock was set back
	if !over() {
		t.Error("Ended is false after the end by the monotonic clock")
	}
}

func TestTheHolderLearnsAtItsNextLookThatTheMachineWasSuspended(t *testing.T) {
	var clock wallclock.Clock
	locks := locker.New(onClock(&clock), locker.WithTTL(time.Hour))
	l, err := locks.Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	child, cancel := context.WithCancel(l.Context())
	defer cancel()
	if l.Context().Err() != nil {
		t.Fatal("lost before the clock was set")
	}
	clock.Jump(2 * time.Hour)
	select {
	case <-l.Context().Done():
	default:
		t.Error("Done is not closed")
	}
	if l.Context().Err() == nil {
		t.Error("Err = nil")
	}
	mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
	if child.Err() == nil {
		t.Error("a context below it has not ended")
	}
	mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
}

func TestDoneIsClosedWithinASecondOfAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wallclock.Clock
		locks := locker.New(onClock(&clock), locker.WithTTL(time.Hour))
		l, err := locks.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		channel := l.Context().Done()
		time.Sleep(10 * time.Second)
		clock.Jump(2 * time.Hour)
		resumed := time.Now()
		<-channel // the holder does not look at the clocks
		if took := time.Since(resumed); took > time.Second {
			t.Errorf("Done was closed after %v", took)
		}
		mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
	})
}

// The wall clock is set ahead, so by it the lease ends long before it does by the monotonic clock.
func TestDoneIsClosedWithinASecondOfTheEndByAWallClockThatWasSet(t *testing.T) {
	for name, whileAsking := range map[string]bool{"while it is held": false, "while it is asked for": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
				var clock wallclock.Clock
				locks := locker.New(clocked{s, &clock}, locker.WithTTL(time.Hour))
				other := mustLock(t, locks, "other", locker.WithTTL(3*time.Second)) // the Client looks at its clocks each second
				time.Sleep(10 * time.Second)
				s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
					if whileAsking {
						clock.Jump(20 * time.Minute)
						time.Sleep(2 * time.Second)
					}
					return next()
				}
				asked := time.Now()
				channel := mustLock(t, locks, "key", locker.WithoutRenewal()).Context().Done()
				if !whileAsking {
					time.Sleep(10 * time.Second)
					clock.Jump(20 * time.Minute)
				}
				<-channel // the holder does not look at the clocks
				if took := time.Since(asked); took > 40*time.Minute+time.Second {
					t.Errorf("Done was closed after %v", took)
				}
				_ = other.Unlock(t.Context())
			})
		})
	}
}

func TestDoneIsClosedWithinASecondOfAResumeWhileTheClientIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wallclock.Clock
		locks := locker.New(onClock(&clock), locker.WithTTL(time.Hour))
		l, err := locks.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		channel := l.Context().Done()
		// The renewal of this one is due a moment before the Client would look at the clocks.
		if _, err := locks.Lock(t.Context(), "other", locker.WithTTL(2970*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		clock.Jump(2 * time.Hour)
		resumed := time.Now()
		<-channel
		if took := time.Since(resumed); took > time.Second {
			t.Errorf("Done was closed after %v", took)
		}
	})
}

// The renewal of the first lock is due before the second lock ends, until the clock is set. Then the
// second has ended already.
func TestALossByAClockThatWasSetDoesNotWaitForTheRenewalOfAnotherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wallclock.Clock
		locks := locker.New(onClock(&clock))
		if _, err := locks.Lock(t.Context(), "extended", locker.WithTTL(time.Hour)); err != nil { // after 20 minutes
			t.Fatal(err)
		}
		l, err := locks.Lock(t.Context(), "key", locker.WithTTL(30*time.Minute), locker.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		channel := l.Context().Done()
		time.Sleep(10 * time.Second)
		clock.Jump(35 * time.Minute)
		set := time.Now()
		<-channel // the holder does not look at the clocks
		if took := time.Since(set); took > time.Second {
			t.Errorf("Done was closed after %v", took)
		}
	})
}

func TestALeaseCountsClockJumpsFromItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wallclock.Clock
		locks := locker.New(onClock(&clock), locker.WithTTL(time.Hour), locker.WithoutRenewal())
		for _, by := range []time.Duration{2 * time.Hour, -5 * time.Hour} {
			clock.Jump(by)
			l, err := locks.Lock(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			clock.Jump(30 * time.Minute)
			time.Sleep(time.Minute)
			if err := l.Extend(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			clock.Jump(40 * time.Minute) // 70 minutes since the request, 40 since the request for the extension
			if l.Context().Err() != nil {
				t.Errorf("the clock was set by %v before the request; lost: %v", by, context.Cause(l.Context()))
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestALostLockStaysLostWhenTheClockIsSetBack(t *testing.T) {
	var clock wallclock.Clock
	l, err := locker.New(onClock(&clock), locker.WithTTL(time.Hour)).Lock(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	clock.Jump(2 * time.Hour)
	if l.Context().Err() == nil {
		t.Error("Err = nil")
	}
	clock.Jump(-2 * time.Hour)
	if l.Context().Err() == nil {
		t.Error("the lock is held again")
	}
	mustMatch(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
}

func TestASynctestBubbleMayEndAsSoonAsTheLastLockIsReleased(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			c := locker.New(newSpy())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			next := make(chan error)
			l, err := c.Lock(ctx, "key")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				l, err := c.Lock(ctx, "key")
				if err == nil {
					err = l.Unlock(ctx)
				}
				next <- err
			}()
			time.Sleep(time.Minute)
			if err := l.Unlock(ctx); err != nil {
				t.Error(err)
			}
			if err := <-next; err != nil {
				t.Error(err)
			}
		}) // panics if a goroutine still waits
	}
}
