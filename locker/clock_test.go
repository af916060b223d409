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
	"github.com/lockstep-go/lockstep/strategies/single"
)

// In a bubble times carry no monotonic reading. These tests are outside, where both clocks are real.

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
	lease := locker.Lease{Expires: time.Now().Add(time.Hour)}.By(&clock)
	if lease.Ended() {
		t.Error("it has ended an hour early")
	}
	clock.Jump(time.Hour + time.Second) // the machine was suspended: its monotonic clock stood still
	if !lease.Ended() {
		t.Error("the wall clock says that it has ended")
	}
	over := locker.Lease{Expires: time.Now().Add(-time.Second)}.By(&clock)
	clock.Jump(-time.Hour) // the wall clock was set back
	if !over.Ended() {
		t.Error("the monotonic clock says that it has ended")
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
		t.Fatal("lost already")
	}
	clock.Jump(2 * time.Hour)
	select {
	case <-l.Context().Done():
	default:
		t.Error("Done is open")
	}
	if l.Context().Err() == nil {
		t.Error("Err = nil")
	}
	mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
	if child.Err() == nil {
		t.Error("a child of the context goes on")
	}
	mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
}

func TestDoneEndsWithinASecondOfAResume(t *testing.T) {
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
		<-channel // no look at the clocks by the holder
		if took := time.Since(resumed); took > time.Second {
			t.Errorf("told after %v", took)
		}
		mustMatch(t, context.Cause(l.Context()), locker.ErrLost)
	})
}

// By the wall clock the lease ends long after the clock was set, and long before it ends by the other.
func TestDoneEndsWithinASecondOfTheEndByAWallClockThatWasSet(t *testing.T) {
	for name, whileAsking := range map[string]bool{"while it is held": false, "while it is asked for": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, _ *locker.Client) {
				var clock wallclock.Clock
				locks := locker.New(clocked{s, &clock}, locker.WithTTL(time.Hour))
				other := mustLock(t, locks, "other", locker.WithTTL(3*time.Second)) // makes the Client look at its clocks all the time
				time.Sleep(10 * time.Second)
				s.onAcquire = func(_ context.Context, next func() (locker.Lease, error)) (locker.Lease, error) {
					if whileAsking {
						clock.Jump(20 * time.Minute)
						time.Sleep(2 * time.Second)
					}
					return next()
				}
				asked := time.Now()
				channel := mustLock(t, locks, "key", locker.WithoutExtension()).Context().Done()
				if !whileAsking {
					time.Sleep(10 * time.Second)
					clock.Jump(20 * time.Minute)
				}
				<-channel // no look at the clocks by the holder
				if took := time.Since(asked); took > 40*time.Minute+time.Second {
					t.Errorf("told after %v", took)
				}
				_ = other.Unlock(t.Context())
			})
		})
	}
}

func TestDoneEndsWithinASecondOfAResumeBesideABusyClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wallclock.Clock
		locks := locker.New(onClock(&clock), locker.WithTTL(time.Hour))
		l, err := locks.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		channel := l.Context().Done()
		// Its lease makes the Client look for an extension a moment before it would look at the clocks.
		if _, err := locks.Lock(t.Context(), "other", locker.WithTTL(2970*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		clock.Jump(2 * time.Hour)
		resumed := time.Now()
		<-channel
		if took := time.Since(resumed); took > time.Second {
			t.Errorf("told after %v", took)
		}
	})
}

// The first lock is due for a look sooner than the second, until the clock is set: then the second has ended already.
func TestALossByTheClockDoesNotWaitForTheRenewalOfAnotherLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wallclock.Clock
		locks := locker.New(onClock(&clock))
		if _, err := locks.Lock(t.Context(), "extended", locker.WithTTL(time.Hour)); err != nil { // after 20 minutes
			t.Fatal(err)
		}
		l, err := locks.Lock(t.Context(), "key", locker.WithTTL(30*time.Minute), locker.WithoutExtension())
		if err != nil {
			t.Fatal(err)
		}
		channel := l.Context().Done()
		time.Sleep(10 * time.Second)
		clock.Jump(35 * time.Minute)
		set := time.Now()
		<-channel // no look at the clocks by the holder
		if took := time.Since(set); took > time.Second {
			t.Errorf("told after %v", took)
		}
	})
}

func TestALeaseCountsClockJumpsFromItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock wallclock.Clock
		locks := locker.New(onClock(&clock), locker.WithTTL(time.Hour), locker.WithoutExtension())
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
			clock.Jump(40 * time.Minute) // 70 since the lock was asked for, 40 since the extension was
			if l.Context().Err() != nil {
				t.Errorf("set by %v before: %v", by, context.Cause(l.Context()))
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestALostLockIsNotFoundAgainWhenTheClockIsSetBack(t *testing.T) {
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
		t.Error("the lock is back")
	}
	mustMatch(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
}

func TestABubbleMayEndAsSoonAsTheLastLockIsReleased(t *testing.T) {
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
		}) // which panics if a goroutine is left that waits
	}
}
