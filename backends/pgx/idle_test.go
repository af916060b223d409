package pgx_test

import (
	"database/sql"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgx"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/internal/verify/pgtest"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
)

// A load balancer or NAT forgets connections without a reset. pgx tests those that were idle for a second, but
// by default without a limit.
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
var ways = map[string]func(t *testing.T, dsn string) backends.Store{
	"Open": func(t *testing.T, dsn string) backends.Store {
		store, pool, err := pgx.Open(t.Context(), dsn+" pool_max_conns=5", pgx.WithMaxTTL(maxTTL))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		severalOf(t, pool)
		return store
	},
	"New": func(t *testing.T, dsn string) backends.Store {
		pool, err := pgxpool.New(t.Context(), dsn+" pool_max_conns=5")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		severalOf(t, pool)
		return pgx.New(pool, pgx.WithMaxTTL(maxTTL))
	},
	"New with one connection": func(t *testing.T, dsn string) backends.Store {
		pool, err := pgxpool.New(t.Context(), dsn+" pool_max_conns=1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pgx.New(pool, pgx.WithMaxTTL(maxTTL))
	},
	"database/sql": func(t *testing.T, dsn string) backends.Store {
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

// severalOf makes a pool open five connections.
func severalOf(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range 5 {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
	}
}
