package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/silent"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// A load balancer or NAT forgets connections without a reset. pgx tests those that were idle for a
// second, but by default without a limit.
func TestIdleConnectionsThatWereForgottenFailNoLock(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	port := strconv.Itoa(server.Port())
	for name, open := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent.Forgets(t, net.JoinHostPort("127.0.0.1", port), silent.Untested, func(t *testing.T, addr string) backends.Store {
				_, near, _ := strings.Cut(addr, ":")
				return open(t, strings.ReplaceAll(server.DSN(), "port="+port, "port="+near))
			})
		})
	}
}

// ways are the ways to a store whose pool has idle connections.
var ways = map[string]func(t testing.TB, dsn string) backends.Store{
	"Open": func(t testing.TB, dsn string) backends.Store {
		store, pool, err := pgxstore.Open(t.Context(), dsn+" pool_max_conns=5", pgxstore.WithMaxTTL(maxTTL))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		severalOf(t, pool)
		return store
	},
	"New": func(t testing.TB, dsn string) backends.Store {
		pool, err := pgxpool.New(t.Context(), dsn+" pool_max_conns=5")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		severalOf(t, pool)
		return pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	},
	"New with one connection": func(t testing.TB, dsn string) backends.Store {
		pool, err := pgxpool.New(t.Context(), dsn+" pool_max_conns=1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	},
	"database/sql": func(t testing.TB, dsn string) backends.Store {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(5)
		for range 5 {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
		}
		return sqlstore.NewPostgreSQL(db, sqlstore.WithMaxTTL(maxTTL))
	},
}

// A pool of pgx keeps the room of a connection that is silent for 15 seconds, for each that a call
// tests. Calls of 13.5 seconds are not enough then.
func TestCallsWithLittleTimeGetPastConnectionsThatWereForgotten(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	port := strconv.Itoa(server.Port())
	for name, calls := range map[string]int{"one after another": 1, "ten at once": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial.WhileBusy(t, time.Second, func(take testing.TB, _ time.Duration) {
				relay := redistest.NewRelay(take, net.JoinHostPort("127.0.0.1", port))
				_, near, _ := strings.Cut(relay.Addr(), ":")
				store := ways["Open"](take, strings.ReplaceAll(server.DSN(), "port="+port, "port="+near))
				take.Cleanup(relay.CutAll)
				time.Sleep(1500 * time.Millisecond) // the pool tests them after a second
				relay.Forsake()
				var all sync.WaitGroup
				for i := range calls {
					all.Go(func() {
						var err error
						for range 15 {
							ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
							_, err = store.SetNX(ctx, fmt.Sprint(relay.Addr(), i), "value", time.Minute)
							cancel()
							if err == nil {
								return
							}
						}
						take.Errorf("after 15 calls: %v", err)
					})
				}
				all.Wait()
			})
		})
	}
}

func TestAHookOfThePoolHoldsUpNoTestOfIdleConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	config, err := pgxpool.ParseConfig(server.DSN() + " pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan struct{})
	var hooked atomic.Bool
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
		if hooked.Load() {
			<-ends
		}
		return true, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	hooked.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	returned := make(chan error, 1)
	go func() {
		_, err := pgxstore.New(pool).SetNX(ctx, t.Name(), "value", time.Second)
		returned <- err
	}()
	select {
	case err := <-returned:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SetNX = %v; want the end of its ctx", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the call did not end with its ctx")
	}
	close(ends)
}

// severalOf makes a pool open five connections.
func severalOf(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for range 5 {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
}
