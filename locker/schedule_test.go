package locker_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
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

// onServer is a key of a ctx: its value names the server of a lock, one of several.
type onServer struct{}

func mustLockOn(t *testing.T, c *locker.Client, server, key string, ttl time.Duration) *locker.Lock {
	t.Helper()
	l, err := c.Lock(context.WithValue(t.Context(), onServer{}, server), key, locker.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// endAll is for the end of a bubble. It returns how many of the locks were lost before.
func endAll(t *testing.T, held []*locker.Lock) (lost int) {
	for _, l := range held {
		if l.Context().Err() != nil {
			lost++
		}
		_ = l.Unlock(t.Context())
	}
	return lost
}

// One node of a cluster is silent, and has twice as many locks as the others.
func TestRenewalsThatHangCostNoOtherLock(t *testing.T) {
	type test struct {
		silent  int
		follows bool // each call ends with its ctx
		mixed   bool // else all locks on the silent node are due first
	}
	for name, test := range map[string]test{
		"in any order": {10000, true, true}, "due first": {10000, true, false}, "fewer, due first": {3600, true, false},
		"for good, in any order": {3600, false, true}, "for good, due first": {3600, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "fewer, due first" {
				full.Only(t)
			}
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				end := make(chan struct{})
				var underWay, most, calls atomic.Int64
				s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
					n := underWay.Add(1)
					defer underWay.Add(-1)
					most.Store(max(most.Load(), n)) // about
					switch server := ctx.Value(onServer{}); {
					case server != "silent":
						time.Sleep(time.Millisecond)
						if server == "fails" && calls.Add(1) <= 100 {
							return contract.Lease{}, backendtest.ErrInjected
						}
						return next()
					case test.follows:
						<-ctx.Done()
						return contract.Lease{}, ctx.Err()
					}
					<-end
					return contract.Lease{}, backendtest.ErrInjected
				}
				var silent, healthy []*locker.Lock
				for i := range test.silent {
					silent = append(silent, mustLockOn(t, c, "silent", fmt.Sprint("silent", i), 30*time.Second))
					if !test.mixed && i < test.silent-1 {
						continue
					}
					for len(healthy) < test.silent/2 && (!test.mixed || len(healthy) < (i+1)/2) {
						server := "answers"
						if len(healthy)%(test.silent/200) == 0 { // the first renewal of a hundred fails
							server = "fails"
						}
						healthy = append(healthy, mustLockOn(t, c, server, fmt.Sprint(len(healthy)), 30*time.Second))
					}
				}
				time.Sleep(2 * time.Minute)
				close(end)
				n := len(healthy)
				if lost := endAll(t, healthy); lost > 0 {
					t.Errorf("%d of %d locks were lost whose renewals are answered", lost, n)
				}
				if most := most.Load(); most > 4096 {
					t.Errorf("%d renewals were under way at once; want 4096 at most", most)
				}
				endAll(t, silent)
			})
		})
	}
}

// Renewals take 1.5 s, and wait for room. None is ended for the sake of another, and a store that is slow as
// a whole has no more of them at once.
func TestASlowStoreIsLeftTheTimeItNeeds(t *testing.T) {
	for name, slow := range map[string][]string{"one node": {"a"}, "all nodes": {"a", "b", "c"}} {
		t.Run(name, func(t *testing.T) {
			if len(slow) > 1 { // what 256 renewals are at most, the next but one test says too
				full.Only(t)
			}
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				var ended, underWay, most atomic.Int64
				s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
					n := underWay.Add(1)
					defer underWay.Add(-1)
					most.Store(max(most.Load(), n)) // about
					takes := time.Millisecond
					if slices.Contains(slow, ctx.Value(onServer{}).(string)) {
						takes = 1500 * time.Millisecond
					}
					select {
					case <-ctx.Done():
						ended.Add(1)
						return contract.Lease{}, ctx.Err()
					case <-time.After(takes):
						return next()
					}
				}
				var held []*locker.Lock
				for i := range 4000 {
					held = append(held, mustLockOn(t, c, string(rune('a'+i%3)), fmt.Sprint(i), time.Minute))
				}
				time.Sleep(3 * time.Minute)
				if n := ended.Load(); n > 0 {
					t.Errorf("%d renewals were ended before their answer", n)
				}
				if n := most.Load(); len(slow) == 3 && n > 256 {
					t.Errorf("%d renewals were under way at once; want 256 at most", n)
				}
				if lost := endAll(t, held); lost > 0 {
					t.Errorf("%d of %d locks were lost", lost, len(held))
				}
			})
		})
	}
}

// Renewals of 12,000 locks keep the store busy for more than a minute. Meanwhile a lock with a short lease
// is due, whose renewal failed once, or which is also extended by hand, in vain.
func TestAShortLeaseComesFirstInTheBacklogAlsoAfterAFailure(t *testing.T) {
	full.Only(t)
	for name, hand := range map[string]bool{"of a renewal": false, "by hand": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				var failed atomic.Bool
				s.onExtend = func(ctx context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
					switch {
					case ctx.Value(byHand{}) != nil:
						<-ctx.Done()
						return contract.Lease{}, ctx.Err()
					case !hand && ctx.Value(onServer{}) == "fails" && !failed.Swap(true):
						return contract.Lease{}, backendtest.ErrInjected
					}
					time.Sleep(1500 * time.Millisecond)
					return next()
				}
				var held []*locker.Lock
				for i := range 12000 {
					held = append(held, mustLockOn(t, c, "", fmt.Sprint(i), 2*time.Minute))
				}
				time.Sleep(39 * time.Second)
				l := mustLockOn(t, c, "fails", "key", 12*time.Second)
				if hand {
					ctx, cancel := context.WithCancel(context.WithValue(t.Context(), byHand{}, true))
					defer cancel()
					go func() { _ = l.Extend(ctx, 12*time.Second) }()
				}
				time.Sleep(90 * time.Second)
				if err := context.Cause(l.Context()); err != nil {
					t.Error(err)
				}
				_ = l.Unlock(t.Context())
				if lost := endAll(t, held); lost > 0 {
					t.Errorf("%d of %d locks were lost", lost, len(held))
				}
			})
		})
	}
}

// While nothing is answered, more renewals would only cost more.
func TestASilentStoreHasNoMoreRenewalsThanThereIsRoomFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var calls atomic.Int64
		s.onExtend = func(ctx context.Context, _ func() (contract.Lease, error)) (contract.Lease, error) {
			calls.Add(1)
			<-ctx.Done()
			return contract.Lease{}, ctx.Err()
		}
		var held []*locker.Lock
		for i := range 3000 {
			held = append(held, mustLock(t, c, fmt.Sprint(i), locker.WithTTL(30*time.Second)))
		}
		time.Sleep(24 * time.Second) // the first renewals last until 25 s
		if n := calls.Load(); n != 256 {
			t.Errorf("%d renewals; want 256", n)
		}
		endAll(t, held)
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
