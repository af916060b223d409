package reentrant_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
)

// hardlyEver is the pause between the attempts of a waiter that is not woken.
func hardlyEver(int, float64) time.Duration { return long }

type locked struct {
	*locker.Lock
	err error
}

func locking(ctx context.Context, c *locker.Client, opts ...locker.Option) <-chan locked {
	got := make(chan locked, 1)
	go lockInto(ctx, got, c, opts...)
	return got
}

func lockInto(ctx context.Context, got chan<- locked, c *locker.Client, opts ...locker.Option) {
	l, err := c.Lock(ctx, "key", opts...)
	got <- locked{l, err}
}

func answer(t *testing.T, got <-chan locked) *locker.Lock {
	t.Helper()
	select {
	case l := <-got:
		if l.err != nil {
			t.Fatalf("Lock = %v", l.err)
		}
		t.Cleanup(func() { l.Unlock(context.Background()) }) // as in lock
		return l.Lock
	case <-time.After(patience):
		t.Fatalf("Lock has not returned after %v", patience)
	}
	return nil
}

func TestAnotherOwnerWaitsUntilTheLastUnlockAndIsWokenThen(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		c := locker.New(reentrant.New(store), locker.WithTTL(long))
		job := as(t.Context(), "job")
		outer, inner := lock(job, t, c, 1), lock(job, t, c, 2)

		faults := new(backendtest.Faults)
		faulty := &wakeCounter{OrderedStore: faults.Ordered(store)}
		other := locker.New(reentrant.New(faulty), locker.WithTTL(long), locker.WithBackoff(hardlyEver))
		waiting := locking(as(t.Context(), "another job"), other)
		// The waiter makes an attempt, watches, makes another attempt, and then sleeps until it is
		// woken.
		eventually(t, "the other one has made two attempts", func() bool { return faults.Calls(backendtest.Enter) == 2 })

		unlock(t, inner)
		faulty.mustHearOf(t, "another key") // an earlier wake-up would have come before this one
		if n := faulty.wakes.Load(); n != 0 {
			t.Errorf("the other one was woken %d times by a release that does not free the lock", n)
		}
		select {
		case l := <-waiting:
			t.Fatalf("Lock returned while there is a hold: %v", l.err)
		default:
		}
		unlock(t, outer)
		l := answer(t, waiting)
		if l.Lease().Holds != 1 {
			t.Errorf("granted as hold %d", l.Lease().Holds)
		}
		unlock(t, l)
	})
}

// wakeCounter counts wakes of the key of these tests.
type wakeCounter struct {
	backends.OrderedStore
	wakes atomic.Int64
}

func (w *wakeCounter) WatchQueued(ctx context.Context, key, waiter string, wake func()) error {
	return w.OrderedStore.WatchQueued(ctx, key, waiter, func() {
		w.wakes.Add(1)
		wake()
	})
}

// mustHearOf waits for a wake-up of another key. A store receives the wake-ups of all keys on one
// connection.
func (w *wakeCounter) mustHearOf(t *testing.T, another string) {
	t.Helper()
	woken := make(chan struct{}, 10)
	if err := w.Watch(t.Context(), another, func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if r, err := w.Enter(t.Context(), another, "token", long, backends.Admission{}); !r.OK || err != nil {
		t.Fatal(r, err)
	}
	if ok, err := w.Leave(t.Context(), another, "token"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	select {
	case <-woken:
	case <-time.After(patience):
		t.Fatalf("no wake within %v", patience)
	}
}

// Other callers wait here for the very owner that nests. Behind one of them the owner would wait
// for itself.
func TestANestedLockNeverWaitsBehindAnotherOwnerInTheSameClient(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		c := locker.New(reentrant.New(store), locker.WithTTL(long))
		job := as(t.Context(), "job")
		outer := lock(job, t, c, 1)
		const each = 3
		waiting := make(chan locked, 3*each)
		for range each {
			go lockInto(as(t.Context(), "another job"), waiting, c)
			go lockInto(as(t.Context(), "a third job"), waiting, c)
			go lockInto(t.Context(), waiting, c)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()

		began := time.Now()
		inner := answer(t, locking(job, c))
		if took := time.Since(began); took != 0 || inner.Lease().Holds != 2 {
			t.Errorf("the nested Lock is hold %d after %v; want 2 at once", inner.Lease().Holds, took)
		}
		innermost := answer(t, locking(job, c, locker.WithAttempts(1)))
		unlock(t, outer, inner, innermost)
		for range cap(waiting) {
			unlock(t, answer(t, waiting))
		}
	})
}

// The other waiters of the same owner are in the queue, and may have the lock before.
func TestANestedLockNeverWaitsBehindTheWaitersOfItsOwner(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
		c := locker.New(reentrant.New(store), locker.WithTTL(long), locker.WithBackoff(hardlyEver))
		elsewhere := locker.New(reentrant.New(store), locker.WithTTL(long))
		job := as(t.Context(), "job")
		lock(as(t.Context(), "another job"), t, elsewhere, 1)
		waiting := make(chan locked, 2)
		for range cap(waiting) {
			go lockInto(job, waiting, c)
		}
		time.Sleep(time.Second)
		outside.Expire("key") // an expiry wakes nobody
		outer := lock(job, t, elsewhere, 1)

		began := time.Now()
		inner := answer(t, locking(job, c))
		if took := time.Since(began); took != 0 || inner.Lease().Holds < 2 {
			t.Errorf("the nested Lock is hold %d after %v; want 2 or more at once", inner.Lease().Holds, took)
		}
		unlock(t, inner, outer)
		for range cap(waiting) {
			unlock(t, answer(t, waiting))
		}
	})
}

// Two goroutines under one name both had to wait for another owner. In the end they hold the lock
// together.
func TestAllWaitersOfOneOwnerGetTheLockTogether(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		c := locker.New(reentrant.New(store), locker.WithTTL(long))
		first := lock(as(t.Context(), "another job"), t, c, 1)
		waiting := make(chan locked, 3)
		for range cap(waiting) {
			go lockInto(as(t.Context(), "job"), waiting, c)
		}
		time.Sleep(10 * time.Second)
		unlock(t, first)
		free := time.Now()
		var held []*locker.Lock
		most := 0
		for range cap(waiting) { // their answers come in any order
			held = append(held, answer(t, waiting))
			most = max(most, held[len(held)-1].Lease().Holds)
		}
		if took := time.Since(free); took > 0 {
			t.Errorf("the last one had to wait for another %v", took)
		}
		if most != 3 {
			t.Errorf("the last one is hold %d", most)
		}
		unlock(t, held...)
	})
}

// Owners exclude each other, however deep each of them nests.
func TestNoTwoOwnersHoldAtOnce(t *testing.T) {
	const owners, rounds, depth = 6, 15, 3
	beneath.Each(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
		clients := []*locker.Client{
			locker.New(reentrant.New(store), locker.WithTTL(long)), locker.New(reentrant.New(store), locker.WithTTL(long)),
		}
		began := time.Now()
		var mu sync.Mutex
		var holds []history.Hold
		var nest func(ctx context.Context, who string, level int) error
		nest = func(ctx context.Context, who string, level int) error {
			return clients[level%2].Do(ctx, "key", func(_ context.Context, l *locker.Lock) error {
				h := history.Hold{Key: "key", Who: who, Start: int64(time.Since(began))}
				if n := l.Lease().Holds; n != level {
					return fmt.Errorf("%s at level %d: hold %d", who, level, n)
				}
				time.Sleep(time.Millisecond)
				if level < depth {
					if err := nest(ctx, who, level+1); err != nil {
						return err
					}
				}
				if h.End = int64(time.Since(began)); level == 1 {
					mu.Lock()
					defer mu.Unlock()
					holds = append(holds, h)
				}
				return nil
			})
		}
		var all sync.WaitGroup
		for o := range owners {
			all.Go(func() {
				who := fmt.Sprint("owner ", o)
				for range rounds {
					if err := nest(as(t.Context(), who), who, 1); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if overlaps := history.Overlaps(holds); len(overlaps) > 0 {
			t.Errorf("%d overlaps, the first: %v", len(overlaps), overlaps[0])
		}
		if len(holds) != owners*rounds {
			t.Errorf("%d holds; want %d", len(holds), owners*rounds)
		}
		if outside.Holds("key") {
			t.Error("something is left under the key")
		}
	})
}
