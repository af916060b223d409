package pgxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies"
	"github.com/redis/go-redis/v9"
)

// from opens the stores of these tests by name. An address of Redis begins with redis: in mixed.
var from = strategies.Backends{
	"postgresql": open,
	"mixed": func(ctx context.Context, addr string) (backends.Store, func() error, error) {
		if addr, ok := strings.CutPrefix(addr, "redis:"); ok {
			store, client := goredis.Open(&redis.Options{Addr: addr}, redisstore.WithoutQuarantine())
			return store, client.Close, nil
		}
		return open(ctx, addr)
	},
}

func open(ctx context.Context, addr string) (backends.Store, func() error, error) {
	store, pool, err := pgxstore.Open(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	return store, func() error { pool.Close(); return nil }, pgxstore.Install(ctx, pool)
}

func TestAQuorumOfPostgreSQLServers(t *testing.T) {
	servers := []*pgtest.Server{pgtest.Start(t, "fsync=off"), pgtest.Start(t, "fsync=off"), pgtest.Start(t, "fsync=off")}
	addrs := []string{servers[0].DSN(), servers[1].DSN(), servers[2].DSN()}
	for _, strategy := range []string{"redlock", "redlock-fenced"} {
		t.Run(strategy, func(t *testing.T) {
			quorum(t, strategies.Config{Strategy: strategy, Backend: "postgresql", Addrs: addrs}, nil)
		})
	}
	t.Run("one server twice is no quorum", func(t *testing.T) {
		_, _, err := strategies.New(t.Context(), strategies.Config{Strategy: "redlock", Backend: "postgresql", Addrs: []string{addrs[0], addrs[1], addrs[0]}}, from)
		if nodes, ok := errors.AsType[*backends.NodesError](err); !ok || len(nodes.Same) != 1 {
			t.Errorf("New = %v; want an error that says which nodes are the same", err)
		}
	})
	t.Run("one server is killed", func(t *testing.T) {
		quorum(t, strategies.Config{Strategy: "redlock", Backend: "postgresql", Addrs: addrs}, servers[2].Kill)
	})
}

func TestAQuorumOfDifferentStores(t *testing.T) {
	r := redistest.Start(t)
	quorum(t, strategies.Config{Strategy: "redlock-fenced", Backend: "mixed", Addrs: []string{
		pgtest.Start(t, "fsync=off").DSN(), pgtest.Start(t, "fsync=off").DSN(), "redis:" + r.Addr(),
	}}, r.Kill)
}

// quorum checks that a lock of the quorum excludes, and that it goes on after kill.
func quorum(t *testing.T, c strategies.Config, kill func()) {
	t.Helper()
	l, closeStores, err := strategies.New(t.Context(), c, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closeStores(); err != nil {
			t.Error(err)
		}
	})
	if kill != nil {
		kill()
	}
	locks, others := locker.New(l), locker.New(l)
	var last uint64
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		held, err := locks.Lock(ctx, "key", locker.WithWait(patience))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := others.TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) {
			t.Errorf("TryLock of a lock that is held = %v", err)
		}
		if c.Strategy == "redlock-fenced" && held.Fence() <= last {
			t.Errorf("number %d after %d", held.Fence(), last)
		}
		last = held.Fence()
		if err := held.Extend(t.Context(), 5*time.Second); err != nil {
			t.Errorf("Extend = %v", err)
		}
		if err := held.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
}
