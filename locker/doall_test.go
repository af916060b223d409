package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
)

// keys returns those of all Acquires and of all Releases so far.
func (s *spy) keys() (acquired, released []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, req := range s.acquires {
		acquired = append(acquired, req.Key)
	}
	for _, lease := range s.releases {
		released = append(released, lease.Key)
	}
	return acquired, released
}

func TestDoAllTakesEachKeyOnceInOrderAndReleasesInReverse(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		keys := []string{"c", "a", "b", "a", "c"}
		err := c.DoAll(t.Context(), keys, func(ctx context.Context, held []*locker.Lock) error {
			var names []string
			for _, l := range held {
				names = append(names, l.Key())
				if l.Context().Err() != nil {
					t.Errorf("%s is not held", l.Key())
				}
			}
			if want := []string{"a", "b", "c"}; !slices.Equal(names, want) {
				t.Errorf("held %v; want %v", names, want)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("DoAll = %v", err)
		}
		acquired, released := s.keys()
		if !slices.Equal(acquired, []string{"a", "b", "c"}) || !slices.Equal(released, []string{"c", "b", "a"}) {
			t.Errorf("acquired %v, released %v", acquired, released)
		}
		if want := []string{"c", "a", "b", "a", "c"}; !slices.Equal(keys, want) {
			t.Errorf("the list of the caller is now %v", keys)
		}
	})
}

func TestDoAllReleasesHoweverTheWorkEnds(t *testing.T) {
	failure := errors.New("write failed")
	for name, work := range map[string]func(context.Context, []*locker.Lock) error{
		"an error": func(context.Context, []*locker.Lock) error { return failure },
		"a panic":  func(context.Context, []*locker.Lock) error { panic(failure) },
		"Goexit":   func(context.Context, []*locker.Lock) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				var gone sync.WaitGroup
				gone.Go(func() {
					defer func() { _ = recover() }()
					err := c.DoAll(t.Context(), []string{"a", "b"}, work, locker.WithMinHold(minHold))
					if err == nil || err.Error() != failure.Error() {
						t.Errorf("DoAll = %v", err)
					}
				})
				gone.Wait()
				s.mustBeFree(t, "a")
				s.mustBeFree(t, "b")
			})
		})
	}
}

func TestTheLossOfAnyLockEndsTheWorkOfDoAll(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for _, lost := range keys {
		t.Run(lost, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				began := time.Now()
				err := c.DoAll(t.Context(), keys, func(ctx context.Context, _ []*locker.Lock) error {
					s.store.Set(lost, "thief", time.Hour)
					<-ctx.Done()
					mustMatch(t, context.Cause(ctx), locker.ErrLost)
					return ctx.Err()
				})
				want := fmt.Sprintf("lockstep: hold %q: lock lost: the store no longer has it", lost)
				if err == nil || err.Error() != want {
					t.Errorf("DoAll = %v; want %s", err, want)
				}
				mustNotMatch(t, err, context.Canceled)
				if took := time.Since(began); took > locker.DefaultTTL/2 {
					t.Errorf("the work ended after %v", took)
				}
				for _, key := range keys {
					if key != lost {
						s.mustBeFree(t, key)
					}
				}
			})
		})
	}
}

// The loss of one lock must not shorten the wait for the releases of the others: each has the ctx of
// the caller.
func TestDoAllReleasesUnderTheCtxOfItsCaller(t *testing.T) {
	t.Run("although another lock is lost", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.onRelease = func(context.Context) error { time.Sleep(1500 * time.Millisecond); return nil }
			err := c.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, _ []*locker.Lock) error {
				s.store.Set("a", "thief", time.Hour)
				<-ctx.Done()
				return ctx.Err()
			})
			if want := `lockstep: hold "a": lock lost: the store no longer has it`; err == nil || err.Error() != want {
				t.Errorf("DoAll = %v; want %s", err, want)
			}
			time.Sleep(time.Minute) // until no release is repeated
		})
	})
	t.Run("and not for longer", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
			s.onRelease = func(context.Context) error { time.Sleep(1500 * time.Millisecond); return nil }
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			err := c.DoAll(ctx, []string{"b"}, func(context.Context, []*locker.Lock) error { return nil })
			mustMatch(t, err, context.DeadlineExceeded)
			if took := time.Since(began); took != 200*time.Millisecond {
				t.Errorf("DoAll took %v", took)
			}
			time.Sleep(time.Minute)
		})
	})
}

// The first lock is lost while DoAll waits for the second.
func TestALossEndsTheWaitOfDoAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.store.Set("b", "other", time.Hour)
		time.AfterFunc(time.Second, func() { s.store.Set("a", "thief", time.Hour) })
		began := time.Now()
		err := c.DoAll(t.Context(), []string{"a", "b"}, func(context.Context, []*locker.Lock) error {
			t.Error("the work was called")
			return nil
		})
		mustMatch(t, err, locker.ErrLost)
		if lost, ok := errors.AsType[*locker.LostError](err); !ok || lost.Key != "a" {
			t.Errorf("DoAll = %v; want that a was lost", err)
		}
		if took := time.Since(began); took > locker.DefaultTTL/2 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestTheWaitLimitOfDoAllIsForAllKeys(t *testing.T) {
	for name, ofClient := range map[string]bool{"of the call": false, "of the Client": true} {
		t.Run(name, func(t *testing.T) {
			var opts []locker.ClientOption
			var ofCall []locker.Option
			if limit := locker.WithWait(10 * time.Second); ofClient {
				opts = append(opts, limit)
			} else {
				ofCall = append(ofCall, limit)
			}
			bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
				s.store.Set("a", "other", 8*time.Second)
				s.store.Set("b", "other", 16*time.Second)
				began := time.Now()
				err := c.DoAll(t.Context(), []string{"a", "b", "c"}, func(context.Context, []*locker.Lock) error {
					t.Error("the work was called")
					return nil
				}, ofCall...)
				mustMatch(t, err, locker.ErrWaitLimit, locker.ErrHeld)
				if held, ok := errors.AsType[*locker.HeldError](err); !ok || held.Key != "b" {
					t.Errorf("DoAll = %v; want that b is held", err)
				}
				mustBeAfter(t, "it ended", time.Since(began), 10*time.Second)
				s.mustBeFree(t, "a")
			}, opts...)
		})
	}
}

// The wait for the first key took up the limit, and the others are free.
func TestDoAllAsksForEachKeyOnceAlthoughItsLimitIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		s.onAcquire = func(_ context.Context, next func() (contract.Lease, error)) (contract.Lease, error) {
			lease, err := next()
			time.Sleep(6 * time.Millisecond)
			return lease, err
		}
		called := false
		err := c.DoAll(t.Context(), []string{"a", "b", "c"}, func(context.Context, []*locker.Lock) error {
			called = true
			return nil
		}, locker.WithWait(10*time.Millisecond))
		if err != nil || !called {
			t.Errorf("DoAll = %v, called: %v", err, called)
		}
	})
}

func TestDoAllCallsDoNotDeadlockEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		clients := []*locker.Client{c, locker.New(s.Locker), locker.New(s.Locker)}
		keys := []string{"a", "b", "c", "d"}
		var mu sync.Mutex
		holders := map[string]int{}
		count := func(held []*locker.Lock, by int) {
			mu.Lock()
			defer mu.Unlock()
			for _, l := range held {
				if holders[l.Key()] += by; holders[l.Key()] > 1 {
					t.Errorf("%d hold %s", holders[l.Key()], l.Key())
				}
			}
		}
		var all sync.WaitGroup
		for i := range 12 {
			dice := rand.New(rand.NewPCG(1, uint64(i)))
			all.Go(func() {
				for range 10 {
					mine := slices.Clone(keys)
					dice.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
					err := clients[i%3].DoAll(t.Context(), mine[:2+dice.IntN(3)], func(_ context.Context, held []*locker.Lock) error {
						count(held, 1)
						defer count(held, -1)
						time.Sleep(time.Duration(1 + dice.IntN(int(20*time.Millisecond))))
						return nil
					}, locker.WithWait(5*time.Minute))
					if err != nil {
						t.Errorf("DoAll = %v", err)
					}
				}
			})
		}
		all.Wait()
	})
}

// Work below DoAll may take further locks, but none that is held.
func TestALockBelowDoAllThatWouldWaitForItselfFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		isDeadlock := func(key string, err error) {
			failed, ok := errors.AsType[*locker.Error](err)
			if !ok || failed.Key != key || failed.ErrorType() != "deadlock" {
				t.Errorf("%s: %v; want a deadlock", key, err)
			}
		}
		err := c.DoAll(t.Context(), []string{"a", "b"}, func(ctx context.Context, _ []*locker.Lock) error {
			for _, key := range []string{"a", "b"} {
				_, err := c.Lock(ctx, key)
				isDeadlock(key, err)
			}
			isDeadlock("b", c.DoAll(ctx, []string{"b", "0"}, func(context.Context, []*locker.Lock) error { return nil }))
			s.mustBeFree(t, "0")
			return c.DoAll(ctx, []string{"c", "d"}, func(context.Context, []*locker.Lock) error { return nil })
		})
		if err != nil {
			t.Errorf("DoAll = %v", err)
		}
	})
	t.Run("except of one owner", func(t *testing.T) {
		bubble(t, func(t *testing.T, _ *spy, _ *locker.Client) {
			c := locker.New(reentrant.New(memory.New()))
			ctx := locker.ContextWithOwner(t.Context(), "job")
			keys := []string{"a", "b"}
			err := c.DoAll(ctx, keys, func(ctx context.Context, _ []*locker.Lock) error {
				return c.DoAll(ctx, keys, func(ctx context.Context, held []*locker.Lock) error {
					if n := held[1].Lease().Holds; n != 2 {
						t.Errorf("the owner has %d holds", n)
					}
					return nil
				})
			})
			if err != nil {
				t.Errorf("DoAll = %v", err)
			}
		})
	})
}

// The release of one lock is not confirmed. The work is done all the same, so each key is kept.
func TestAReleaseThatFailsDoesNotFreeTheOtherKeysOfDoAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		err := c.DoAll(t.Context(), []string{"a", "b"}, func(context.Context, []*locker.Lock) error {
			s.faults.Once(backendtest.ExpireIf, backendtest.Permanent)
			return nil
		}, locker.WithMinHold(minHold))
		failed, ok := errors.AsType[*locker.Error](err)
		if !ok || failed.Op != "release" || failed.Key != "b" {
			t.Errorf("DoAll = %v; want that the release of b is not confirmed", err)
		}
		for _, key := range []string{"a", "b"} {
			_, err := c.TryLock(t.Context(), key)
			mustMatch(t, err, locker.ErrHeld)
		}
		time.Sleep(minHold)
		s.mustBeFree(t, "a")
		s.mustBeFree(t, "b")
	})
}

func TestBadInputOfDoAllIsAnErrorBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, s *spy, c *locker.Client) {
		var none *locker.Client
		var noCtx context.Context
		ctx, work := t.Context(), func(context.Context, []*locker.Lock) error {
			t.Error("the work was called")
			return nil
		}
		for _, x := range []struct {
			err  error
			want string
		}{
			{c.DoAll(ctx, nil, work), `lockstep: lock "": there are no keys`},
			{c.DoAll(ctx, []string{"a", ""}, work), `lockstep: lock "": key is empty`},
			{c.DoAll(ctx, []string{"a", "b\x00"}, work), "has a NUL at byte 1"},
			{c.DoAll(ctx, []string{"a", strings.Repeat("k", 513)}, work), "key of 513 bytes is over the limit of 512"},
			{c.DoAll(ctx, []string{"a"}, nil), `lockstep: lock "": work is nil`},
			{c.DoAll(noCtx, []string{"a"}, work), `lockstep: lock "a": ctx is nil; use context.Background()`},
			{c.DoAll(ctx, []string{"a"}, work, nil), `lockstep: lock "a": option is nil`},
			{none.DoAll(ctx, []string{"a"}, work), `lockstep: lock "a": the Client was not made by locker.New`},
		} {
			var permanent interface{ Permanent() bool }
			if x.err == nil || !strings.HasSuffix(x.err.Error(), x.want) || !errors.As(x.err, &permanent) || !permanent.Permanent() {
				t.Errorf("%v; want %s", x.err, x.want)
			}
		}
		if acquires, _, _, _ := s.asked(); acquires != 0 {
			t.Errorf("%d attempts were made", acquires)
		}
	})
}
