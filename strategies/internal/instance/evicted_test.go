package instance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// looked is a store that counts its looks at a key.
type looked struct {
	*memory.Store
	inspect func(ctx context.Context) // before a look; nil: nothing
	fails   error
	looks   atomic.Int32
}

func (s *looked) Inspect(ctx context.Context, key string) (backends.State, error) {
	s.looks.Add(1)
	if s.inspect != nil {
		s.inspect(ctx)
	}
	if s.fails != nil {
		return backends.State{}, s.fails
	}
	return s.Store.Inspect(ctx, key)
}

func (s *looked) evict(t *testing.T, now bool) {
	t.Helper()
	state, err := s.Store.Inspect(t.Context(), "k")
	if err != nil || len(state.Holds) != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
	if ok, err := s.Evict(t.Context(), "k", state.Holds[0].Print, backends.Eviction{By: "ann", Now: now}); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// A lost lease is told in time, whatever becomes of the look for the cause.
func TestTheCauseOfALossIsLookedForOnce(t *testing.T) {
	const ttl = 9 * time.Second
	hangs := func(ctx context.Context) { <-ctx.Done() }
	ignores := func(context.Context) { time.Sleep(time.Hour) }
	for name, c := range map[string]struct {
		inspect func(context.Context)
		lose    func(t *testing.T, s *looked)
		limit   time.Duration // of the ctx; 0: none
		looks   int32
		reason  locker.LostReason
		within  time.Duration
	}{
		"evicted":                    {nil, func(t *testing.T, s *looked) { s.evict(t, false) }, 0, 1, locker.LostEvicted, 0},
		"evicted and opened":         {nil, func(t *testing.T, s *looked) { s.evict(t, true) }, 0, 1, locker.LostStolen, 0},
		"deleted":                    {nil, func(_ *testing.T, s *looked) { s.Delete("k") }, 0, 1, locker.LostStolen, 0},
		"given to another":           {nil, func(_ *testing.T, s *looked) { s.Set("k", "theirs", ttl) }, 0, 1, locker.LostStolen, 0},
		"ended":                      {nil, func(*testing.T, *looked) { time.Sleep(ttl) }, 0, 0, locker.LostExpired, 0},
		"the look hangs":             {hangs, func(t *testing.T, s *looked) { s.evict(t, false) }, 0, 1, locker.LostStolen, time.Second / 2},
		"the look ignores its ctx":   {ignores, func(t *testing.T, s *looked) { s.evict(t, false) }, 0, 1, locker.LostStolen, time.Second / 2},
		"the call has a short limit": {ignores, func(t *testing.T, s *looked) { s.evict(t, false) }, 50 * time.Millisecond, 1, locker.LostStolen, 25 * time.Millisecond},
	} {
		for op, call := range map[string]func(context.Context, locker.Locker, contract.Lease) error{
			"Extend": func(ctx context.Context, l locker.Locker, lease contract.Lease) error {
				_, err := l.Extend(ctx, lease, ttl)
				return err
			},
			"Release": func(ctx context.Context, l locker.Locker, lease contract.Lease) error { return l.Release(ctx, lease) },
		} {
			t.Run(op+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &looked{Store: memory.New()}
					l := instance.Queued(s, false)
					lease, err := l.Acquire(t.Context(), contract.Request{Key: "k", Token: contract.NewToken(), TTL: ttl})
					if err != nil {
						t.Fatal(err)
					}
					if lease, err = l.Extend(t.Context(), lease, ttl); err != nil || s.looks.Load() != 0 {
						t.Fatalf("Extend = %v, with %d looks", err, s.looks.Load())
					}
					c.lose(t, s)
					s.inspect = c.inspect
					ctx := t.Context()
					if c.limit > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, c.limit)
						defer cancel()
					}
					began := time.Now()
					err = call(ctx, l, lease)
					lost, _ := errors.AsType[*locker.LostError](err)
					if took := time.Since(began); lost == nil || lost.Reason != c.reason || s.looks.Load() != c.looks || took != c.within {
						t.Errorf("%v after %v, with %d looks; want %s after %v, with %d", err, took, s.looks.Load(), c.reason, c.within, c.looks)
					}
					time.Sleep(2 * time.Hour)
				})
			})
		}
	}
}

// A look that can never succeed tells the cause: the file of SQLite was replaced, for example. A look that the
// options of the store exclude tells nothing.
func TestALookThatFailsForGoodIsTheCauseOfALoss(t *testing.T) {
	moved, down, excluded := backends.AsPermanent(errors.New("moved")), errors.New("down"), backends.Invalid("needs scripts")
	for fails, want := range map[error]error{moved: moved, down: nil, excluded: nil} {
		s := &looked{Store: memory.New(), fails: fails}
		l := instance.Queued(s, false)
		lease, err := l.Acquire(t.Context(), contract.Request{Key: "k", Token: contract.NewToken(), TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.Delete("k")
		_, err = l.Extend(t.Context(), lease, 10*time.Second)
		if lost, ok := errors.AsType[*locker.LostError](err); !ok || lost.Reason != locker.LostStolen || lost.Err != want {
			t.Errorf("a look that fails with %q: %v; want the cause %v", fails, err, want)
		}
	}
}

// An attempt that cleans up after itself names a lease without an end: it has nobody to tell.
func TestACleanupDoesNotLookForTheCause(t *testing.T) {
	s := &looked{Store: memory.New()}
	lease := contract.Lease{Key: "k", Token: contract.NewToken()}
	if err := instance.Queued(s, false).Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) || s.looks.Load() != 0 {
		t.Errorf("Release = %v, with %d looks", err, s.looks.Load())
	}
}
