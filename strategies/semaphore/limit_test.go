package semaphore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

const ttl = 10 * time.Second

func pool(store backends.SharedStore, permits int, opts ...semaphore.Option) *locker.Client {
	return locker.New(semaphore.New(store, permits, opts...), locker.WithTTL(ttl))
}

func TestNeverMoreThanTheLimit(t *testing.T) {
	const clients, each, permits = 3, 8, 4
	rounds := 3
	if full.Size() {
		rounds = 10
	}
	for name, opts := range map[string][]semaphore.Option{"whoever asks": nil, "in order": {semaphore.WithOrder()}} {
		t.Run(name, func(t *testing.T) {
			beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var now, most atomic.Int64
				var all sync.WaitGroup
				used := make(chan struct{}) // closed when all permits are in use: the first holders wait for that
				allUsed := sync.OnceFunc(func() { close(used) })
				for range clients {
					c := pool(store, permits, opts...)
					for range each {
						all.Go(func() {
							for range rounds {
								err := c.Do(ctx, "key", func(context.Context, *locker.Lock) error {
									n := now.Add(1)
									if n == permits {
										allUsed()
									}
									for m := most.Load(); n > m; m = most.Load() {
										most.CompareAndSwap(m, n)
									}
									select {
									case <-used:
									case <-ctx.Done():
									}
									time.Sleep(time.Millisecond)
									now.Add(-1)
									return nil
								})
								if err != nil && ctx.Err() == nil {
									t.Error(err)
								}
							}
						})
					}
				}
				all.Wait()
				if m := most.Load(); m != permits {
					t.Errorf("%d had a permit at once; want %d", m, permits)
				}
			})
		})
	}
}

func TestALowerLimitEndsNoPermitAndAdmitsNobodyUntilFewerAreLeft(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		five, three := pool(store, 5), pool(store, 3)
		var locks []*locker.Lock
		for i := range 5 {
			l := try(t, five)
			if h, r := l.Lease().Holds, l.Lease().Room; h != i+1 || r != 4-i {
				t.Errorf("permit %d has Holds %d and Room %d", i+1, h, r)
			}
			locks = append(locks, l)
		}
		for i, l := range locks[:3] {
			_, err := three.TryLock(t.Context(), "key")
			var held *locker.HeldError
			if !errors.As(err, &held) || held.Holds != 5-i {
				t.Errorf("with %d permits in use and a limit of 3: %v", 5-i, err)
			}
			if err := l.Extend(t.Context(), ttl); err != nil {
				t.Errorf("Extend of a permit beyond the limit = %v", err)
			}
			unlock(t, l)
		}
		l := try(t, three)
		unlock(t, append(locks[3:], l)...)
	})
}

func TestAHigherLimitAdmitsAtOnce(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		one, two := pool(store, 1), pool(store, 2)
		first := try(t, one)
		if _, err := one.TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) {
			t.Errorf("TryLock with a limit of 1 = %v", err)
		}
		second := try(t, two)
		unlock(t, first, second)
	})
}

// A dead holder's permit ends in its time, although the others are renewed.
func TestADeadHolderCostsItsOwnPermitForItsTTL(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		dead := semaphore.New(store, 2)
		if _, err := dead.Acquire(t.Context(), contract.Request{Key: "key", Token: contract.NewToken(), TTL: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		c := pool(store, 2)
		alive := try(t, c)
		began := time.Now()
		next, err := c.Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("the permit was free after %v; want 2 s", took)
		}
		time.Sleep(3 * ttl)
		unlock(t, alive, next)
	})
}

// Waiters of one Client are let in together where there is room.
func TestFivePermitsThatAreFreedWakeFive(t *testing.T) {
	beneath.InFakeTime(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		const permits, waiters = 5, 12
		faults := new(backendtest.Faults)
		c, before := pool(faults.Ordered(store), permits), pool(store, permits)
		var taken []*locker.Lock
		for range permits {
			taken = append(taken, try(t, before))
		}
		locks := make(chan *locker.Lock, waiters)
		for range waiters {
			go func() {
				l, err := c.Lock(t.Context(), "key")
				if err != nil {
					t.Error(err)
				}
				locks <- l
			}()
		}
		time.Sleep(5 * time.Second)
		calls, free := faults.Calls(backendtest.Enter), time.Now()
		unlock(t, taken...)
		var got []*locker.Lock
		for range permits {
			got = append(got, <-locks)
		}
		if took := time.Since(free); took > 0 {
			t.Errorf("the last of five had to wait another %v", took)
		}
		time.Sleep(time.Second)
		if n := faults.Calls(backendtest.Enter) - calls; n > 3*permits {
			t.Errorf("%d calls of Enter for %d grants", n, permits)
		}
		for range waiters - permits {
			unlock(t, got[0])
			got = append(got[1:], <-locks)
		}
		unlock(t, got...)
	})
}

func TestBadInputIsAPermanentError(t *testing.T) {
	for name, l := range map[string]locker.Locker{
		"no permits":             semaphore.New(memory.New(), 0),
		"fewer":                  semaphore.New(memory.New(), -1),
		"order without a queue":  semaphore.New(unordered{memory.New()}, 1, semaphore.WithOrder()),
		"a store that is nil":    semaphore.New(nil, 1),
		"a store that is nil, 2": semaphore.New((*memory.Store)(nil), 1),
	} {
		_, err := locker.New(l).TryLock(t.Context(), "key")
		var permanent interface{ Permanent() bool }
		if !errors.As(err, &permanent) || !permanent.Permanent() || errors.Is(err, locker.ErrHeld) {
			t.Errorf("%s: %v; want a permanent error", name, err)
		}
	}
	l := try(t, pool(unordered{memory.New()}, 1))
	unlock(t, l)
}

// unordered is a store without a queue.
type unordered struct{ backends.SharedStore }

func try(t *testing.T, c *locker.Client) *locker.Lock {
	t.Helper()
	l, err := c.TryLock(t.Context(), "key")
	if err != nil {
		t.Fatalf("TryLock = %v", err)
	}
	return l
}

func unlock(t *testing.T, locks ...*locker.Lock) {
	t.Helper()
	for _, l := range locks {
		if err := l.Unlock(context.Background()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
}

// A worker id is its holder's alone, also while others come and go.
func TestNoTwoHaveTheSameSlotAtOnce(t *testing.T) {
	const clients, each, rounds, permits = 3, 4, 10, 5
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		var taken [permits]atomic.Int64
		var all sync.WaitGroup
		for range clients {
			c := pool(store, permits, semaphore.WithSlots())
			for range each {
				all.Go(func() {
					for range rounds {
						err := c.Do(t.Context(), "key", func(_ context.Context, l *locker.Lock) error {
							slot := l.Lease().Slot
							if n := taken[slot].Add(1); n != 1 {
								t.Errorf("%d have slot %d at once", n, slot)
							}
							time.Sleep(time.Millisecond)
							taken[slot].Add(-1)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
	})
}

func TestMorePermitsThanSlotsAreRefused(t *testing.T) {
	_, err := pool(memory.New(), backends.MaxSlots+1, semaphore.WithSlots()).TryLock(t.Context(), "key")
	if want := `lockstep: acquire "key": a limit of 2048 does not go with slots: use 1 to 2047`; err == nil || err.Error() != want {
		t.Errorf("TryLock = %v; want %s", err, want)
	}
}

// A lease that is left to end, instead, is released when its holder has to take it for lost: 12 ms
// before the second is over.
func TestPermitsWithAMinimumHoldAreARateLimit(t *testing.T) {
	const permits, window = 3, time.Second
	for name, opts := range map[string][]locker.ClientOption{"of the TTL of a lease": {locker.WithTTL(window)}, "shorter than a TTL": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				var mu sync.Mutex
				var begun []time.Time
				var all sync.WaitGroup
				for range 2 {
					c := locker.New(semaphore.New(store, permits), opts...)
					for range 10 {
						all.Go(func() {
							l, err := c.Lock(t.Context(), "key", locker.WithMinHold(window))
							if err != nil {
								t.Error(err)
								return
							}
							mu.Lock()
							begun = append(begun, time.Now())
							mu.Unlock()
							if err := l.Unlock(t.Context()); err != nil {
								t.Error(err)
							}
						})
					}
				}
				all.Wait()
				for i := range len(begun) - permits {
					if apart := begun[i+permits].Sub(begun[i]); apart < window {
						t.Errorf("%d calls began within %v", permits+1, apart)
					}
				}
				if all := begun[len(begun)-1].Sub(begun[0]); all > time.Duration(len(begun)/permits+1)*window {
					t.Errorf("%d calls took %v", len(begun), all)
				}
			})
		})
	}
}
