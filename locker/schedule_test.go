package locker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// The renewals of the long leases are all due at the same time and take 15 s in all. Meanwhile each
// short lease is due every second.
func TestMoreExtensionsThanFitAreMadeInTheOrderInWhichLeasesEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onExtend = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			time.Sleep(500 * time.Millisecond)
			return next()
		}
		var held []*locker.Lock
		for i := range 8000 {
			held = append(held, mustLock(t, c, fmt.Sprint("long ", i), locker.WithTTL(30*time.Second)))
		}
		for i := range 10 {
			held = append(held, mustLock(t, c, fmt.Sprint("short ", i), locker.WithTTL(3*time.Second)))
		}
		time.Sleep(40 * time.Second)
		for _, l := range held {
			if err := context.Cause(l.Context()); err != nil {
				t.Errorf("%s: %v", l.Key(), err)
			}
			_ = l.Unlock(t.Context()) // lost or not, for the end of the bubble
		}
	})
}

// A store that takes longer than a second for each renewal loses no lock: a renewal has until the next
// one.
func TestARenewalMayTakeUntilTheNextOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			select {
			case <-time.After(3 * time.Second):
				return next()
			case <-ctx.Done():
				return contract.Lease{}, ctx.Err()
			}
		}
		l := mustLock(t, c, "key", locker.WithTTL(30*time.Second))
		time.Sleep(2 * time.Minute)
		if err := context.Cause(l.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, l)
	})
}

// The wall clock is set ahead while more renewals are due than fit. Those that wait for room end
// too, and not only when their leases end by the monotonic clock.
func TestLeasesWhoseRenewalsWaitForRoomEndByTheWallClock(t *testing.T) {
	var clock wallclock.Clock
	bubbleWithAClock(t, &clock, func(t *testing.T, s *spy, c *locker.Client) {
		end := make(chan struct{})
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			<-end
			return contract.Lease{}, backendtest.ErrInjected
		}
		var held []*locker.Lock
		var done []<-chan struct{}
		for i := range 300 { // 256 renewals are under way at once
			l := mustLock(t, c, fmt.Sprint(i), locker.WithTTL(30*time.Second))
			held, done = append(held, l), append(done, l.Context().Done())
		}
		time.Sleep(12 * time.Second)
		clock.Jump(time.Hour)
		time.Sleep(3 * time.Second)
		late := 0
		for _, over := range done { // a look at the context itself would read the clock
			select {
			case <-over:
			default:
				late++
			}
		}
		if late > 0 {
			t.Errorf("%d of %d contexts had not ended", late, len(held))
		}
		close(end)
		for _, l := range held {
			_ = l.Unlock(t.Context())
		}
	})
}
