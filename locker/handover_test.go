package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// take calls Lock on a goroutine of its own, and returns when that call stands in line.
func take(t *testing.T, c *locker.Client, key string) <-chan *locker.Lock {
	t.Helper()
	got := make(chan *locker.Lock, 1)
	go func() {
		if l, err := c.Lock(context.WithoutCancel(t.Context()), key); err != nil {
			t.Errorf("Lock = %v", err)
		} else {
			got <- l
		}
	}()
	synctest.Wait()
	return got
}

func TestALeaseIsHandedOverUpToTheLimitAndThenReleased(t *testing.T) {
	var told grants
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const calls = 12
		l := mustLock(t, c, "key")
		var next [calls]<-chan *locker.Lock
		for i := range next {
			next[i] = take(t, c, "key")
		}
		tokens := map[string]int{}
		for i := range next {
			tokens[l.Lease().Token]++
			before := l
			mustUnlock(t, l)
			l = <-next[i]
			if cause := context.Cause(before.Context()); !errors.Is(cause, locker.ErrReleased) {
				t.Errorf("the context of the holder before ended with %v", cause)
			}
			if err := l.Context().Err(); err != nil {
				t.Errorf("the next holder has a context that ended with %v", err)
			}
			if call := told.noted()[i+1]; !call.contended {
				t.Errorf("call %d: %+v; want it contended", i+1, call)
			}
		}
		tokens[l.Lease().Token]++
		mustUnlock(t, l)
		for token, holds := range tokens {
			if holds > 4 {
				t.Errorf("%d holds had token %q", holds, token)
			}
		}
		if _, _, releases, _ := s.asked(); releases != 4 || len(tokens) != 4 { // 13 holds, at most four of each lease
			t.Errorf("%d releases of %d leases; want 4 of 4", releases, len(tokens))
		}
		if _, _, held := s.store.Get("key"); held {
			t.Error("the key is still in the store")
		}
	}, locker.WithMaxHandovers(3), locker.WithMiddleware(told.around))
}

func TestUnderWithMaxHandoversAnotherClientWaitsForAtMostNMoreHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, hands = 5, 3
		store := single.New(memory.New()) // it has a queue
		c, other := locker.New(store, locker.WithMaxHandovers(n)), locker.New(store)
		var mu sync.Mutex
		var order []string
		stop := make(chan struct{})
		var running sync.WaitGroup
		loop := func(c *locker.Client, name string) {
			running.Go(func() {
				for {
					l := mustLock(t, c, "key")
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					time.Sleep(300 * time.Millisecond) // so long that the next head makes an attempt meanwhile
					mustUnlock(t, l)
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		for range hands {
			loop(c, "here")
		}
		loop(other, "there")
		time.Sleep(10 * time.Minute)
		close(stop)
		running.Wait()
		run, longest, there := 0, 0, 0
		for _, name := range order {
			if run++; name == "there" {
				there++
				run = 0
			}
			longest = max(longest, run)
		}
		if longest > n+1 || there < len(order)/(n+2)-1 { // the other Client enters the queue with its next attempt
			t.Errorf("the other Client had %d of %d holds, and waited for up to %d", there, len(order), longest)
		}
	})
}

func TestANumberedOwnedLostOrEndingLeaseIsNotHandedOver(t *testing.T) {
	t.Run("numbered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := locker.New(fenced.New(memory.New()), locker.WithMaxHandovers(100))
			l := mustLock(t, c, "key")
			last := l.Fence()
			for range 5 {
				next := take(t, c, "key")
				mustUnlock(t, l)
				if l = <-next; l.Fence() <= last {
					t.Errorf("number %d after %d", l.Fence(), last)
				}
				last = l.Fence()
			}
			mustUnlock(t, l)
		})
	})
	t.Run("with an owner", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l, err := c.Lock(locker.ContextWithOwner(t.Context(), "job"), "key")
			if err != nil {
				t.Fatal(err)
			}
			next := take(t, c, "key") // without an owner
			mustUnlock(t, l)
			again := <-next
			if again.Lease().Token == l.Lease().Token {
				t.Error("the lease of an owner was handed over to a call without one")
			}
			mustUnlock(t, again)
		}, locker.WithMaxHandovers(100))
	})
	t.Run("near its end", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key", locker.WithoutRenewal(), locker.WithTTL(10*time.Second))
			next := take(t, c, "key")
			time.Sleep(6 * time.Second)
			mustUnlock(t, l)
			again := <-next
			if again.Lease().Token == l.Lease().Token {
				t.Errorf("handed over with %v left", time.Until(l.Lease().Expires))
			}
			mustUnlock(t, again)
		}, locker.WithMaxHandovers(100))
	})
	t.Run("lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			next := take(t, c, "key")
			s.store.Set("key", "thief", time.Second)
			<-l.Context().Done() // when an extension finds it gone
			if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Unlock = %v", err)
			}
			again := <-next
			if again.Lease().Token == l.Lease().Token {
				t.Error("a lost lease was handed over")
			}
			mustUnlock(t, again)
		}, locker.WithMaxHandovers(100))
	})
	t.Run("lost by the maximum hold, and kept until Unlock", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key", locker.WithMaxHold(time.Second))
			next := take(t, c, "key")
			<-l.Context().Done()
			if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Unlock = %v", err)
			}
			again := <-next
			if again.Lease().Token == l.Lease().Token {
				t.Error("a lost lease was handed over")
			}
			mustUnlock(t, again)
		}, locker.WithMaxHandovers(100))
	})
}

// The ctx of the head ends at the moment of the handover.
func TestALeaseHandedOverToAWaiterThatLeftIsReleased(t *testing.T) {
	for range 200 {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan *locker.Lock, 1)
			go func() {
				next, _ := c.Lock(ctx, "key")
				got <- next
			}()
			synctest.Wait()
			go cancel()
			mustUnlock(t, l)
			if next := <-got; next != nil {
				mustUnlock(t, next)
			}
			time.Sleep(time.Second)
			if _, _, held := s.store.Get("key"); held {
				t.Fatal("the key is still in the store")
			}
		}, locker.WithMaxHandovers(100))
	}
}

// Middleware may repeat a Release, whatever the result of the first was.
func TestARepeatedReleaseDoesNotEndALeaseThatWasHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var released []contract.Lease
		c := locker.New(single.New(store), locker.WithMaxHandovers(2), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return twice{next, &released}
		}))
		l := mustLock(t, c, "key")
		for range 2 {
			next := take(t, c, "key")
			mustUnlock(t, l)
			l = <-next
			waits := take(t, c, "key") // nor must a repeated Release hand the lease over again
			for _, lease := range released {
				if err := (twice{Locker: c.Locker()}).Locker.Release(t.Context(), lease); err != nil && !errors.Is(err, locker.ErrLost) {
					t.Errorf("Release again = %v", err)
				}
			}
			synctest.Wait()
			if value, _, _ := store.Get("key"); value != l.Lease().Token || l.Context().Err() != nil {
				t.Errorf("the key has %q, and the context of the holder ended with %v", value, l.Context().Err())
			}
			select {
			case second := <-waits:
				t.Fatalf("two holders: %v and %v", l, second)
			default:
			}
			mustUnlock(t, l)
			l = <-waits
		}
		mustUnlock(t, l)
		time.Sleep(time.Minute)
	})
}

// twice notes every Release, so that the test can repeat it.
type twice struct {
	locker.Locker
	released *[]contract.Lease
}

func (m twice) Release(ctx context.Context, lease contract.Lease) error {
	*m.released = append(*m.released, lease)
	return m.Locker.Release(ctx, lease)
}

func TestManyHoldersThatHandOverExcludeEachOther(t *testing.T) {
	c := locker.New(single.New(memory.New()), locker.WithMaxHandovers(7))
	counter, total := 0, 0
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 300 {
				if err := c.Do(t.Context(), "key", func(context.Context, *locker.Lock) error { counter++; return nil }); err != nil {
					t.Error(err)
				}
			}
		})
		total += 300
	}
	all.Wait()
	if counter != total {
		t.Errorf("%d of %d updates", counter, total)
	}
}

// The Client sends a second Release beside the first one if that is not answered within a second.
// Middleware may do so as well.
func TestOfTwoReleasesAtOnceAtMostOneHandsTheLeaseOver(t *testing.T) {
	c := locker.New(single.New(memory.New()), locker.WithMaxHandovers(1000), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
		return impatient{next}
	}))
	var inside atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				l := mustLock(t, c, "key")
				if inside.Add(1) > 1 {
					t.Error("two holders at once")
				}
				runtime.Gosched()
				inside.Add(-1)
				_ = l.Unlock(context.Background()) // the second of the two may have found the lease gone
			}
		})
	}
	all.Wait()
}

// impatient sends each Release twice at once.
type impatient struct{ locker.Locker }

func (m impatient) Release(ctx context.Context, lease contract.Lease) error {
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		both.Go(func() { errs[i] = m.Locker.Release(ctx, lease) })
	}
	both.Wait()
	return errs[0]
}

// A head that waits for long makes attempts meanwhile, and so has a position in the queue of the
// store.
func TestAHeadThatIsHandedTheLeaseLeavesTheQueueOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c, other := locker.New(fair.New(store), locker.WithMaxHandovers(8)), locker.New(fair.New(store))
		first := mustLock(t, c, "key")
		second := take(t, c, "key")
		time.Sleep(2 * time.Second) // it has made an attempt
		there := take(t, other, "key")
		mustUnlock(t, first)
		l := <-second
		began := time.Now()
		mustUnlock(t, l) // must reserve the lock for the other, not for the position of the second
		mustUnlock(t, <-there)
		if took := time.Since(began); took > 0 {
			t.Errorf("the other Client waited for %v", took)
		}
		time.Sleep(time.Second)
	})
}

// An attempt may hang for as long as its ctx allows. The key must not stay locked meanwhile.
func TestALeaseIsNotHandedToAWaiterInTheMiddleOfAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		answer := s.hangAcquire(func(next func() (contract.Lease, error)) (contract.Lease, error) { return next() })
		waiter := take(t, c, "key")
		mustUnlock(t, l)
		s.mustBeFree(t, "key")
		time.Sleep(20 * time.Second)
		answer()
		mustUnlock(t, <-waiter)
	}, locker.WithMaxHandovers(100), locker.WithTTL(30*time.Second))
}

func TestAnAttemptThatIsAnsweredLateIsNotHandedALeaseThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key", locker.WithTTL(locker.DefaultTTL))
		answer := s.hangAcquire(func(func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, &locker.HeldError{Key: "key"}
		})
		waiter := take(t, c, "key")
		mustUnlock(t, l)
		time.Sleep(20 * time.Second) // longer than the lease of l
		answer()
		mustUnlock(t, <-waiter)
	}, locker.WithMaxHandovers(100), locker.WithTTL(30*time.Second))
}

// hangAcquire keeps the next attempt until answer is called, which gives it the result of with.
func (s *spy) hangAcquire(with func(next func() (contract.Lease, error)) (contract.Lease, error)) (answer func()) {
	hangs := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
		s.mu.Lock()
		s.onAcquire = nil
		s.mu.Unlock()
		<-hangs
		return with(next)
	}
	return func() { close(hangs) }
}

// A line is notified of the end of a hold when Release has returned. The lease may have its next
// holder by then.
func TestTheEndOfAHoldThatWasHandedOverWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy()
		s.onWatch = func(context.Context) error { return errors.ErrUnsupported }
		never := locker.WithBackoff(func(int, float64) time.Duration { return time.Hour })
		c := locker.New(s, never, locker.WithMaxHandovers(2), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return slowAfterRelease{next}
		}))
		l := mustLock(t, c, "key")
		second, third, fourth := take(t, c, "key"), take(t, c, "key"), take(t, c, "key")
		asked, _, _, _ := s.asked()
		for _, next := range []<-chan *locker.Lock{second, third} {
			mustUnlock(t, l)
			l = <-next
			time.Sleep(10 * time.Millisecond)
			if now, _, _, _ := s.asked(); now != asked {
				t.Errorf("%d attempts after a handover; want none", now-asked)
			}
		}
		mustUnlock(t, l) // this Release is sent, and wakes the fourth
		began := time.Now()
		mustUnlock(t, <-fourth)
		if took := time.Since(began); took > time.Millisecond {
			t.Errorf("the lock was free for %v", took)
		}
	})
}

// slowAfterRelease returns from Release a moment after the lease was handed over.
type slowAfterRelease struct{ locker.Locker }

func (m slowAfterRelease) Release(ctx context.Context, lease contract.Lease) error {
	err := m.Locker.Release(ctx, lease)
	time.Sleep(time.Millisecond)
	return err
}

// The hooks of the hold before must not be called for the hold that follows.
func TestAHoldThatWasHandedOverHasHooksOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, ended atomic.Int32
		c := locker.New(single.New(memory.New()), locker.WithMaxHandovers(100), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return counting{next, &begun, &ended}
		}))
		l := mustLock(t, c, "key")
		for holds := int32(1); holds <= 3; holds++ {
			if begun.Load() != holds || ended.Load() != holds-1 {
				t.Errorf("in hold %d, middleware has seen %d begin and %d end", holds, begun.Load(), ended.Load())
			}
			next := take(t, c, "key")
			mustUnlock(t, l)
			l = <-next
		}
		mustUnlock(t, l)
		if begun.Load() != 4 || ended.Load() != 4 {
			t.Errorf("of 4 holds, middleware has seen %d begin and %d end", begun.Load(), ended.Load())
		}
	})
}

type counting struct {
	locker.Locker
	begun, ended *atomic.Int32
}

func (m counting) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := m.Locker.Acquire(ctx, req)
	if err != nil {
		return lease, err
	}
	contract.CallOf(ctx).OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
		m.begun.Add(1)
		return ctx, func(time.Time, error) { m.ended.Add(1) }
	})
	return lease, nil
}

func TestLeasesThatWereHandedOverAreForgottenWhenTheyHaveEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		for range 1000 {
			l := mustLock(t, c, "key")
			next := take(t, c, "key")
			mustUnlock(t, l)
			if next := <-next; next.Lease().Token != l.Lease().Token {
				t.Fatal("the lease was not handed over")
			} else {
				mustUnlock(t, next)
			}
			time.Sleep(100 * time.Millisecond) // ten leases last at a time
		}
		if n := c.HandedOver(); n > 0 {
			t.Errorf("%d leases are remembered", n)
		}
	}, locker.WithMaxHandovers(100), locker.WithTTL(time.Second))
}

func TestTheMaximumHoldCountsFromTheGrant(t *testing.T) {
	t.Run("granted by the store", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
				defer time.Sleep(400 * time.Millisecond) // the answer is slow
				return next()
			}
			began := time.Now()
			l := mustLock(t, c, "key", locker.WithMaxHold(time.Second))
			<-l.Context().Done()
			if held := time.Since(began); held != time.Second {
				t.Errorf("the hold ended %v after Lock was called; want 1s", held)
			}
			_ = l.Unlock(t.Context())
		})
	})
	t.Run("handed over", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key")
			got := make(chan *locker.Lock)
			go func() { got <- mustLock(t, c, "key", locker.WithMaxHold(time.Second)) }()
			time.Sleep(2 * time.Second)
			began := time.Now()
			mustUnlock(t, l)
			next := <-got
			<-next.Context().Done()
			if held := time.Since(began); held != time.Second {
				t.Errorf("the hold ended %v after the handover; want 1s", held)
			}
			_ = next.Unlock(t.Context())
		}, locker.WithMaxHandovers(100))
	})
}

// noRelease is middleware that lets no Release through.
type noRelease struct{ locker.Locker }

func (noRelease) Release(context.Context, contract.Lease) error { return fault{permanent: true} }

func TestAHandoverIsForgottenWithItsLeaseAlthoughNoReleaseIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inner locker.Locker
		middleware := func(next locker.Locker) locker.Locker {
			inner = next
			return noRelease{next}
		}
		c := locker.New(single.New(memory.New()), locker.WithMaxHandovers(1), locker.WithTTL(time.Second), locker.WithMiddleware(middleware))
		for i := range 1000 {
			l := mustLock(t, c, fmt.Sprint(i))
			next := take(t, c, fmt.Sprint(i))
			mustUnlock(t, l)
			if err := (<-next).Unlock(t.Context()); !errors.Is(err, fault{permanent: true}) {
				t.Fatalf("Unlock = %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := locker.HandedOver(inner); n > 0 {
			t.Errorf("%d leases are remembered", n)
		}
	})
}

// The ticket has the lease, whoever waits in this process.
func TestALeaseThatIsGivenAwayIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		first := mustLock(t, c, "key")
		next := take(t, c, "key")
		mustUnlock(t, first)
		second := <-next // by a handover, so the lease is remembered
		waits := take(t, c, "key")
		if _, err := second.Transfer(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case l := <-waits:
			t.Fatalf("%v although a ticket has the lease", l)
		default:
		}
		if n := c.HandedOver(); n > 0 {
			t.Errorf("%d leases are remembered", n)
		}
		mustUnlock(t, <-waits) // when the lease has ended
	}, locker.WithMaxHandovers(9))
}

// What may be left of a lost lease is released, also if the lease was handed over before.
func TestALeaseThatWasHandedOverAndLostIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		first := mustLock(t, c, "key")
		next := take(t, c, "key")
		mustUnlock(t, first)
		second := <-next
		s.mu.Lock()
		s.onExtend = func(context.Context, func() (contract.Lease, error)) (contract.Lease, error) {
			return contract.Lease{}, errors.New("down")
		}
		s.mu.Unlock()
		<-second.Context().Done()
		time.Sleep(time.Second)
		if _, _, releases, _ := s.asked(); releases != 1 || c.HandedOver() != 0 {
			t.Errorf("%d Releases were sent, and %d leases are remembered; want 1 and none", releases, c.HandedOver())
		}
		mustMatch(t, second.Unlock(t.Context()), locker.ErrLost)
	}, locker.WithMaxHandovers(1))
}

func TestAHandoverIsRememberedForAsLongAsItsLeaseIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		first := mustLock(t, c, "key")
		next := take(t, c, "key")
		mustUnlock(t, first)
		second := <-next
		time.Sleep(3 * locker.DefaultTTL)
		for i := range 300 { // enough for a sweep of old records
			mustUnlock(t, mustLock(t, c, fmt.Sprint(i)))
		}
		_ = c.Locker().Release(t.Context(), first.Lease()) // middleware may repeat it
		if _, _, held := s.store.Get("key"); !held {
			t.Error("the release of the first hold ended the second")
		}
		mustUnlock(t, second)
	}, locker.WithMaxHandovers(1), locker.WithMiddleware(func(next locker.Locker) locker.Locker { return next }))
}

// A head that was handed a lease leaves the queue of the store. Until the line has a new watch, it
// takes no position there: nobody would hear of its turn.
func TestAHeadAfterAHandoverTakesNoPositionBeforeItsWatchIsActive(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, c, "key")
		second := take(t, c, "key")
		time.Sleep(20 * time.Second) // it looks by itself, and so has a position
		third := take(t, c, "key")
		time.Sleep(time.Second)
		again := mustWatchNoMore(s)
		mustUnlock(t, l) // to second, by handover
		l = <-second
		s.mu.Lock()
		before := len(s.acquires)
		s.mu.Unlock()
		time.Sleep(20 * time.Second)
		s.mu.Lock()
		if len(s.acquires) == before {
			t.Error("the head has made no attempt")
		}
		for _, req := range s.acquires[before:] {
			if req.Waiter != "" {
				t.Errorf("an attempt has the waiter %q, and no watch is active", req.Waiter)
			}
		}
		s.mu.Unlock()
		mustUnlock(t, l)
		l = <-third
		close(again)
		mustUnlock(t, l)
	}, locker.WithMaxHandovers(1))
}

// mustWatchNoMore makes every further Watch hang until the channel is closed.
func mustWatchNoMore(s *spy) chan struct{} {
	again := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onWatch = func(ctx context.Context) error {
		select {
		case <-again:
		case <-ctx.Done():
		}
		return errors.ErrUnsupported
	}
	return again
}

// quota is middleware that refuses one call after its grant, and releases that.
type quota struct {
	locker.Locker
	full *atomic.Bool
}

var errQuota = errors.New("over quota")

func (q quota) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := q.Locker.Acquire(ctx, req)
	if err != nil || !q.full.Swap(false) {
		return lease, err
	}
	if err := q.Release(context.WithoutCancel(ctx), lease); err != nil {
		return contract.Lease{}, err
	}
	return contract.Lease{}, errQuota
}

// The Client tells its waiters of a lease that middleware refuses: no hold does.
func TestAWaiterHasTheLockAtOnceThatMiddlewareRefusesToTheCallBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		c := locker.New(single.New(memory.New()), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return quota{next, &full}
		}))
		l := mustLock(t, c, "key")
		refused, taken := make(chan error, 1), make(chan time.Time, 1)
		go func() {
			_, err := c.Lock(t.Context(), "key")
			refused <- err
		}()
		synctest.Wait()
		go func() {
			next, err := c.Lock(t.Context(), "key")
			at := time.Now()
			if err == nil {
				err = next.Unlock(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
			taken <- at
		}()
		synctest.Wait()
		full.Store(true)
		began := time.Now()
		mustUnlock(t, l)
		mustMatch(t, <-refused, errQuota)
		if waited := (<-taken).Sub(began); waited > 0 {
			t.Errorf("the next waiter had the lock after %v", waited)
		}
	})
}

// While a lease that was handed over is held, no other Release of it is sent: it may be that of an earlier
// holder, repeated by middleware. A lease that middleware refuses has no holder, so its Release must be sent.
func TestALeaseThatMiddlewareRefusesIsReleasedThoughItWasHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var full atomic.Bool
		c := locker.New(single.New(store), locker.WithMaxHandovers(3), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return quota{next, &full}
		}))
		for range 10 {
			l := mustLock(t, c, "key")
			refused := make(chan error, 1)
			go func() {
				_, err := c.Lock(t.Context(), "key")
				refused <- err
			}()
			synctest.Wait()
			full.Store(true)
			mustUnlock(t, l)
			mustMatch(t, <-refused, errQuota)
			released := time.Now()
			mustUnlock(t, mustLock(t, locker.New(single.New(store)), "key"))
			if waited := time.Since(released); waited > 0 {
				t.Fatalf("nobody held the lock, and it was locked for %v", waited)
			}
		}
		if n := c.HandedOver(); n > 0 {
			t.Errorf("%d leases are remembered", n)
		}
	})
}

// again is middleware that releases the lease which it gets, and asks once more.
type again struct{ locker.Locker }

func (a again) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := a.Locker.Acquire(ctx, req)
	if err != nil {
		return lease, err
	}
	if err := a.Release(ctx, lease); err != nil {
		return contract.Lease{}, err
	}
	req.Token = contract.NewToken()
	return a.Locker.Acquire(ctx, req)
}

func TestMiddlewareCanReleaseALeaseThatWasHandedOverAndAskAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locker.New(single.New(memory.New()), locker.WithMaxHandovers(3), locker.WithMiddleware(func(next locker.Locker) locker.Locker {
			return again{next}
		}))
		l := mustLock(t, c, "key")
		next := take(t, c, "key")
		released := time.Now()
		mustUnlock(t, l)
		l = <-next
		if waited := time.Since(released); waited > 0 {
			t.Errorf("the next call had the lock after %v", waited)
		}
		mustUnlock(t, l)
		if n := c.HandedOver(); n > 0 {
			t.Errorf("%d leases are remembered", n)
		}
	})
}

// slowAnswers gives the answer to an Extend later, and does not follow its ctx.
type slowAnswers struct{ locker.Locker }

func (s slowAnswers) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	extended, err := s.Locker.Extend(context.WithoutCancel(ctx), lease, ttl)
	time.Sleep(50 * time.Millisecond)
	return extended, err
}

func TestALeaseOfWhichUnlockHearsThatItIsLostIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c := locker.New(slowAnswers{single.New(store)}, locker.WithMaxHandovers(3), locker.WithoutRenewal())
		l := mustLock(t, c, "key")
		store.Delete("key") // the store forgets
		others := mustLock(t, locker.New(single.New(store)), "key")
		next := take(t, c, "key")
		extended := make(chan error, 1)
		go func() { extended <- l.Extend(t.Context(), 20*time.Second) }()
		synctest.Wait()
		mustMatch(t, l.Unlock(t.Context()), locker.ErrLost)
		<-extended
		time.Sleep(time.Second)
		if len(next) > 0 {
			t.Error("the next waiter was handed a lease that another Client has")
		}
		mustUnlock(t, others)
		mustUnlock(t, <-next)
	})
}

// The lock is locked for the waiter's TTL if its holder dies, and without renewal held for no longer.
func TestALeaseThatIsLongerThanAWaiterAsksForIsNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locker.New(single.New(memory.New()), locker.WithMaxHandovers(3))
		long := mustLock(t, c, "key", locker.WithTTL(30*time.Second))
		got := make(chan *locker.Lock, 1)
		go func() {
			l, err := c.Lock(t.Context(), "key", locker.WithTTL(time.Second), locker.WithoutRenewal())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		synctest.Wait()
		mustUnlock(t, long)
		l := <-got
		if left := time.Until(l.Lease().Expires); left > time.Second {
			t.Errorf("a lock with a TTL of one second lasts %v", left)
		}
		mustUnlock(t, l)
	})
}
