package locker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestSharedKeysAreNeitherWatchedNorQueuedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		l := mustLock(t, locker.New(s), "key", locker.WithTTL(time.Hour))
		got := make(chan *locker.Lock)
		go func() { got <- mustLock(t, c, "key") }()
		time.Sleep(10 * time.Second)
		acquires, _, _, watches := s.asked()
		if watches != 0 || acquires < 130 || acquires > 400 {
			t.Errorf("%d attempts and %d watches in 10 s; want an attempt every 25 to 75 ms, and no watch", acquires, watches)
		}
		mustUnlock(t, l)
		mustUnlock(t, <-got)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, req := range s.acquires[1:] {
			if req.Waiter != "" || !req.OtherSoftware {
				t.Fatalf("an attempt takes a position: %+v", req)
			}
		}
	}, locker.WithOtherSoftware())
}

func TestAClientThatReleasesASharedKeyLeavesItToOthersForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		const between = 25 * time.Millisecond
		waiting := make(chan time.Time)
		mustUnlock(t, mustLock(t, c, "key"))
		released := time.Now()
		l := mustLock(t, c, "key")
		if took := time.Since(released); took < between {
			t.Errorf("the Client has the key again after %v; want a pause of %v at least", took, between)
		}
		go func() { // a waiter of the same Client
			l := mustLock(t, c, "key")
			waiting <- time.Now()
			mustUnlock(t, l)
		}()
		time.Sleep(time.Minute)
		mustUnlock(t, l)
		released = time.Now()
		if took := (<-waiting).Sub(released); took < between {
			t.Errorf("the next waiter has the key after %v; want a pause of %v at least", took, between)
		}
		began := time.Now()
		mustUnlock(t, mustLock(t, c, "another"))
		if time.Since(began) != 0 {
			t.Error("another key had to wait")
		}
	}, locker.WithOtherSoftware())
}

// Other software has a poller for each of its goroutines. A Client has one head, which polls for up to
// eight of its goroutines.
func TestAClientPollsASharedKeyForEachOfItsWaiters(t *testing.T) {
	for waiters, as := range map[int]int{1: 1, 2: 2, 5: 5, 8: 8, 100: 8} {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			l := mustLock(t, c, "key", locker.WithTTL(time.Hour))
			var wg sync.WaitGroup
			granted := make(chan time.Time, waiters)
			for range waiters {
				wg.Go(func() {
					l := mustLock(t, c, "key")
					granted <- time.Now()
					mustUnlock(t, l)
				})
			}
			synctest.Wait()
			before, _, _, _ := s.asked()
			time.Sleep(3 * time.Second)
			after, _, _, watches := s.asked()
			if n := after - before; n < 40*as || n > 120*as || watches != 0 {
				t.Errorf("%d attempts of %d waiters in 3 s, and %d watches; want an attempt every 25 to 75 ms for %d", n, waiters, watches, as)
			}
			mustUnlock(t, l)
			released := time.Now()
			least, most := 25*time.Millisecond/time.Duration(as), 75*time.Millisecond/time.Duration(as)
			if took := (<-granted).Sub(released); took < least || took > most {
				t.Errorf("the next of %d waiters has the key after %v; want a pause of %v to %v", waiters, took, least, most)
			}
			wg.Wait()
		}, locker.WithOtherSoftware())
	}
}

// The pollers make an attempt every 50 ms, and none for 50 ms after a release. Without the pause
// after a release, our Clients would get nearly all grants. Without polling they would get hardly
// any.
func TestAClientAndPollersOfASharedKeyBothGetTheLock(t *testing.T) {
	const grants, work, interval = 300, 5 * time.Millisecond, 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		ctx, over := context.WithCancel(t.Context())
		var mu sync.Mutex
		var wg sync.WaitGroup
		ours, theirs := 0, 0
		count := func(share *int) {
			mu.Lock()
			defer mu.Unlock()
			if *share++; ours+theirs == grants {
				over()
			}
		}
		for i := range 4 {
			c := locker.New(single.New(store), locker.WithOtherSoftware())
			wg.Go(func() {
				for {
					l, err := c.Lock(ctx, "key")
					if err != nil {
						return
					}
					count(&ours)
					time.Sleep(work)
					mustUnlock(t, l)
				}
			})
			wg.Go(func() {
				time.Sleep(time.Duration(i) * interval / 4)
				for ; ctx.Err() == nil; time.Sleep(interval) {
					r, err := store.SetNX(ctx, "key", fmt.Sprint("poller", i), 10*time.Second)
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					if !r.OK {
						continue
					}
					count(&theirs)
					time.Sleep(work)
					_, _ = store.DeleteIf(context.Background(), "key", fmt.Sprint("poller", i))
				}
			})
		}
		wg.Wait()
		t.Logf("%d ours, %d theirs", ours, theirs)
		if least := grants / 2 / 5; ours < least || theirs < least {
			t.Errorf("ours have %d of %d grants, theirs %d; want at least a fifth of a half share, %d", ours, grants, theirs, least)
		}
	})
}

func TestWithOtherSoftwareIsAnErrorWithFairOrWithMaxHandovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		for says, c := range map[string]*locker.Client{
			"locker.WithOtherSoftware does not go with locker.WithMaxHandovers": locker.New(fair.New(store), locker.WithMaxHandovers(3), locker.WithOtherSoftware()),
			"waiters can't stand in order":                                      locker.New(fair.New(store), locker.WithOtherSoftware()),
		} {
			for _, lock := range []func() error{
				func() error { _, err := c.Lock(t.Context(), "key"); return err },
				func() error { _, err := c.TryLock(t.Context(), "key"); return err },
			} {
				if err := lock(); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%v; want it to say %q", err, says)
				}
			}
		}
		if _, _, stored := store.Get("key"); stored {
			t.Error("something was stored")
		}
	})
}
