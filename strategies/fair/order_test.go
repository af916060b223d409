package fair_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// These tests check what package fair promises beyond single, in fake time.

const clients = 16

// arrivals are calls of Lock, one after the other.
type arrivals struct {
	t   *testing.T
	all sync.WaitGroup

	mu      sync.Mutex
	granted []int
	when    []time.Time
}

// arrive calls Lock in a goroutine, and returns when that call waits. A call that is granted the
// lock notes it and releases the lock after a while.
func (a *arrivals) arrive(who int, locks *locker.Client, hold time.Duration, opts ...locker.Option) {
	a.all.Go(func() {
		l, err := locks.Lock(a.t.Context(), "key", opts...)
		if err != nil {
			a.t.Errorf("Lock of %d: %v", who, err)
			return
		}
		a.mu.Lock()
		a.granted, a.when = append(a.granted, who), append(a.when, time.Now())
		a.mu.Unlock()
		time.Sleep(hold)
		if err := l.Unlock(context.WithoutCancel(a.t.Context())); err != nil {
			a.t.Errorf("Unlock of %d: %v", who, err)
		}
	})
	synctest.Wait()
}

func (a *arrivals) sum() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.granted)
}

// wantInOrder waits for all calls, and for the idle goroutines of their Clients to end.
func (a *arrivals) wantInOrder(want ...int) {
	a.t.Helper()
	a.all.Wait()
	if !slices.Equal(a.granted, want) {
		a.t.Errorf("granted in the order %v; want %v", a.granted, want)
	}
	time.Sleep(time.Second)
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func mustLock(t *testing.T, locks *locker.Client, opts ...locker.Option) *locker.Lock {
	t.Helper()
	l, err := locks.TryLock(t.Context(), "key", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustUnlock(t *testing.T, l *locker.Lock) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestClientsAreGrantedTheLockInTheOrderInWhichTheyAsked(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := mustLock(t, locker.New(fair.New(store)))
		a := arrivals{t: t}
		for i := range clients {
			a.arrive(i, locker.New(fair.New(store)), time.Duration(i%5)*150*time.Millisecond)
		}
		mustUnlock(t, l)
		a.wantInOrder(upTo(clients)...)
	})
}

// A Client is one waiter, however many of its calls wait.
func TestClientsTakeTurnsHoweverManyCallsEachHasWaiting(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := mustLock(t, locker.New(fair.New(store)))
		a := arrivals{t: t}
		crowd, alone := locker.New(fair.New(store)), locker.New(fair.New(store))
		for i := range 4 {
			a.arrive(i, crowd, time.Millisecond)
		}
		a.arrive(10, alone, time.Millisecond)
		a.arrive(11, alone, time.Millisecond)
		mustUnlock(t, l)
		a.wantInOrder(0, 10, 1, 11, 2, 3)
	})
}

func TestTheOrderOutlivesAHolderThatDies(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		dead := contract.Request{Key: "key", Token: contract.NewToken(), TTL: 7 * time.Second}
		if _, err := fair.New(store).Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a := arrivals{t: t}
		for i := range clients {
			a.arrive(i, locker.New(fair.New(store)), 300*time.Millisecond)
		}
		a.wantInOrder(upTo(clients)...)
		if first := a.when[0].Sub(began); first < dead.TTL || first > dead.TTL+100*time.Millisecond {
			t.Errorf("the first was granted the lock %v after the death of its holder, whose lease was %v", first, dead.TTL)
		}
	})
}

func TestTryLockNeitherPassesWaitersNorTakesAPosition(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
		l := mustLock(t, locker.New(fair.New(store)))
		a := arrivals{t: t}
		for i := range 3 {
			a.arrive(i, locker.New(fair.New(store)), 300*time.Millisecond)
		}
		quick := locker.New(fair.New(store))
		try := func() {
			t.Helper()
			var held *locker.HeldError
			l, err := quick.TryLock(t.Context(), "key")
			if !errors.As(err, &held) || held.Position != 0 {
				t.Errorf("TryLock while others wait = %v, %v; want it held, and no position", l, err)
			}
			if err == nil {
				mustUnlock(t, l)
			}
		}
		try()
		outside.Delete("key") // it is free now, without a wake-up
		try()
		for a.sum() < 3 {
			try()
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
		}
		try()
		a.wantInOrder(0, 1, 2)
		mustUnlock(t, mustLock(t, quick))
		_ = l.Unlock(t.Context()) // the lock was lost
	})
}

func TestAHeldErrorHasThePositionInTheQueue(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := mustLock(t, locker.New(fair.New(store)))
		var all sync.WaitGroup
		for position := 1; position <= 6; position++ {
			locks := locker.New(fair.New(store))
			for behind := range 2 {
				all.Go(func() {
					// the last one leaves first, so nobody moves up before it has left
					_, err := locks.Lock(t.Context(), "key", locker.WithWait(time.Duration(20-2*position-behind)*100*time.Millisecond))
					var held *locker.HeldError
					if !errors.As(err, &held) || held.Position != position+behind {
						t.Errorf("position %d, and %d calls of the same Client before: %v; want the sum in %+v", position, behind, err, held)
					}
				})
				synctest.Wait()
			}
		}
		all.Wait()
		mustUnlock(t, l)
		time.Sleep(time.Second)
	})
}

func TestAWaiterThatStopsLeavesNoPositionBehind(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := mustLock(t, locker.New(fair.New(store)))
		a := arrivals{t: t}
		var impatient sync.WaitGroup
		for i := range clients {
			if i%2 == 0 {
				impatient.Go(func() {
					_, err := locker.New(fair.New(store)).Lock(t.Context(), "key", locker.WithWait(time.Second))
					if !errors.Is(err, locker.ErrWaitLimit) {
						t.Errorf("Lock of %d = %v", i, err)
					}
				})
				synctest.Wait()
				continue
			}
			a.arrive(i, locker.New(fair.New(store)), 0)
		}
		impatient.Wait()
		synctest.Wait()
		released := time.Now()
		mustUnlock(t, l)
		a.all.Wait()
		if took := time.Since(released); took > 0 {
			t.Errorf("the waiters had the lock one after the other in %v: a waiter waited for a position that nobody had", took)
		}
		a.wantInOrder(1, 3, 5, 7, 9, 11, 13, 15)
	})
}

// A holder and the waiters before a call die at once, as when a machine with all of them is lost. The store
// reserves the key for each of the dead, one after the other. The first three of a queue look as a
// lease or a reservation ends, and each one behind them 250 ms later than the one before it.
func TestWaitersThatDieWithTheHolderKeepTheNextOneForAShortTime(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		for _, dead := range []int{0, 1, 3, 6} {
			locks := fair.New(store)
			ctx, die := context.WithCancel(t.Context())
			req := contract.Request{Key: "key", Token: contract.NewToken(), TTL: 20 * time.Second}
			if _, err := locks.Acquire(ctx, req); err != nil {
				t.Fatal(err)
			}
			ends, most := time.Now().Add(req.TTL), 10*time.Millisecond
			for i := range dead {
				behind := time.Duration(max(i+2-3, 0)) * 250 * time.Millisecond
				most += behind + backends.Reservation
				if i == dead-1 { // the look as the lease ends
					most += behind
				}
				req := contract.Request{Key: "key", Token: contract.NewToken(), TTL: time.Second}
				req.Waiter = contract.NewToken()
				var held *locker.HeldError
				if err := locks.Watch(ctx, "key", req.Waiter, func() {}); err != nil {
					t.Fatal(err)
				}
				if _, err := locks.Acquire(ctx, req); !errors.As(err, &held) || held.Position == 0 {
					t.Fatalf("a waiter gets %v", err)
				}
			}
			a := arrivals{t: t}
			a.arrive(0, locker.New(locks), 0)
			a.all.Wait()
			if took := a.when[0].Sub(ends); took > most {
				t.Errorf("behind %d waiters that died, the lock was granted %v after the lease had ended; want %v at most", dead, took, most)
			}
			die()
			time.Sleep(time.Minute)
		}
	})
}

// A grant to a call that has just stopped waiting goes to the next waiter without delay.
func TestAGrantThatComesTooLateGoesToTheNextWaiter(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		for range 50 {
			l, err := locker.New(fair.New(store)).Lock(t.Context(), "key", locker.WithWait(time.Second)) // the late grant is being released
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var first sync.WaitGroup
			first.Go(func() {
				if l, err := locker.New(fair.New(store)).Lock(ctx, "key"); err == nil {
					mustUnlock(t, l)
				}
			})
			synctest.Wait()
			a := arrivals{t: t}
			a.arrive(1, locker.New(fair.New(store)), 0)
			released := time.Now()
			go cancel()
			mustUnlock(t, l)
			first.Wait()
			a.all.Wait()
			if took := time.Since(released); took > 0 {
				t.Fatalf("the next had the lock after %v", took)
			}
			cancel()
		}
		time.Sleep(time.Second)
	})
}

func TestClientsThatLoopAreGrantedTheLockEquallyOften(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		const each = 20
		l := mustLock(t, locker.New(fair.New(store)))
		loop := newLoop(each * clients)
		for i := range clients {
			locks := locker.New(fair.New(store))
			loop.all.Go(func() { loop.run(t, locks, i) })
		}
		synctest.Wait()
		mustUnlock(t, l)
		loop.wantFair(t)
	})
}

// A loop is a number of Clients that lock again and again until there were enough grants in total.
type loop struct {
	all  sync.WaitGroup
	left chan struct{}
	had  [clients]int
}

func newLoop(sum int) *loop {
	l := &loop{left: make(chan struct{}, sum)}
	for range sum {
		l.left <- struct{}{}
	}
	close(l.left)
	return l
}

func (lo *loop) run(t *testing.T, locks *locker.Client, who int) {
	for {
		err := locks.Do(t.Context(), "key", func(context.Context, *locker.Lock) error {
			if _, ok := <-lo.left; !ok {
				return errEnough
			}
			lo.had[who]++
			time.Sleep(time.Millisecond) // in fake time: until the holder before waits again
			return nil
		})
		if errors.Is(err, errEnough) {
			return
		}
		if err != nil {
			t.Errorf("client %d: %v", who, err)
			return
		}
	}
}

var errEnough = errors.New("enough")

func (lo *loop) wantFair(t *testing.T) {
	t.Helper()
	lo.all.Wait()
	least, most := slices.Min(lo.had[:]), slices.Max(lo.had[:])
	if float64(most) > 1.1*float64(least) {
		t.Errorf("one Client had the lock %d times, another %d: %v", most, least, lo.had)
	}
}

// Package single does not use the queue here: its locks are excluded, and pass the waiters while
// the lock is free.
func TestALockOfPackageSingleIsExcludedAndRespectsNoQueue(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		dead := contract.Request{Key: "key", Token: contract.NewToken(), TTL: time.Second}
		if _, err := fair.New(store).Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		ends := time.Now().Add(dead.TTL)
		a := arrivals{t: t}
		a.arrive(0, locker.New(fair.New(store)), 0)
		old := locker.New(single.New(store))
		if _, err := old.TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) {
			t.Errorf("TryLock of a lock that is held = %v", err)
		}
		time.Sleep(time.Until(ends))
		for limit := ends.Add(time.Second); ; { // a store for Redis adds a ms to the TTL; the waiter makes its attempt a ms after the end
			l, err := old.TryLock(t.Context(), "key")
			if err == nil {
				mustUnlock(t, l)
				break
			}
			if !errors.Is(err, locker.ErrHeld) || a.sum() > 0 || time.Now().After(limit) {
				t.Fatalf("TryLock of a lock that has ended = %v; the waiter was granted it %d times", err, a.sum())
			}
			time.Sleep(100 * time.Microsecond)
		}
		a.wantInOrder(0)
	})
}
