package goredis

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/redisstore/driver"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// misled is a store that takes every key to be free when a waiter asks for it: a release that found
// nobody in the queue seems to have come just before.
type misled struct{ *redisstore.Store }

func (m misled) SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	_, _ = m.DeleteIf(ctx, key, nobodys)
	return m.Store.SetNXQueued(ctx, key, value, ttl, t)
}

func (m misled) SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t backends.Turn) (backends.Result, error) {
	_, _ = m.DeleteIf(ctx, key, nobodys)
	return m.Store.SetNXNumbered(ctx, key, value, ttl, t)
}

const nobodys = "a token that nobody has"

// misleading is the executor of a misled store. It counts the plain SETs.
type misleading struct {
	driver.Executor
	sets *atomic.Int64
}

func (e misleading) Once(ctx context.Context, args ...any) (any, error) {
	switch {
	case slices.Contains(args, any(nobodys)):
		return int64(2), nil // what free.lua answers if nobody is in the queue
	case args[0] == "SET":
		e.sets.Add(1)
	}
	return e.Executor.Once(ctx, args...)
}

// A key that seems to be free may be held, or reserved.
func TestContractOfAStoreThatTakesEveryKeyToBeFree(t *testing.T) {
	c := harness.Connect(t, drivertest.Server{Addr: redistest.Start(t).Addr()})
	var sets atomic.Int64
	store := misled{redisstore.New(misleading{c.Executor, &sets}, redisstore.WithMaxTTL(time.Hour))}
	t.Run("QueuedStore", func(t *testing.T) {
		backendtest.RunQueued(t, backendtest.QueuedHarness{MaxTTL: time.Hour, New: func(t *testing.T) (backends.QueuedStore, backendtest.Outside) {
			return store, drivertest.Outside{T: t, Exec: c.Executor}
		}})
	})
	if sets.Load() == 0 {
		t.Error("no key was taken to be free")
	}
	t.Run("NumberedStore", func(t *testing.T) {
		backendtest.RunNumbered(t, backendtest.NumberedHarness{Clock: true, MaxTTL: time.Hour, New: func(t *testing.T) (backends.NumberedStore, backendtest.Outside) {
			return store, drivertest.Outside{T: t, Exec: c.Executor}
		}})
	})
}

// counting is an executor that counts commands by name.
type counting struct {
	driver.Executor
	sent *sync.Map
}

func (c counting) Once(ctx context.Context, args ...any) (any, error) {
	n, _ := c.sent.LoadOrStore(args[0], new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	return c.Executor.Once(ctx, args...)
}

// A Client that is the only one to use a key does not need the queue of the store.
func TestAClientThatIsAloneWithAKeyDoesNotUseItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 40
		var sent sync.Map
		count := func(command string) int64 {
			n, ok := sent.Load(command)
			if !ok {
				return 0
			}
			return n.(*atomic.Int64).Load()
		}
		store := redisstore.New(counting{harness.Embedded(t).Executor, &sent})
		locks := locker.New(single.New(store))
		// of another Client: the wake-up by an own release may come before its answer, and then two waiters ask
		held, err := locker.New(single.New(store)).Lock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				l, err := locks.Lock(t.Context(), "key")
				if err == nil {
					err = l.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		sets, scripts := count("SET"), count("EVALSHA")
		if err := held.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		time.Sleep(time.Second) // until the watch of the Client has ended
		sets, scripts = count("SET")-sets, count("EVALSHA")-scripts
		// The first waiter had a position. All others take the lock with SET, and each release is a script.
		if sets != n-1 || scripts != n+1+1 {
			t.Errorf("%d SETs and %d scripts for %d locks", sets, scripts, n)
		}
	})
}
