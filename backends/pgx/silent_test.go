package pgx_test

import (
	"database/sql"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lockstep-go/lockstep/backends/pgx"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/internal/verify/pgtest"
	"github.com/lockstep-go/lockstep/internal/verify/silent"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestAConnectionThatFallsSilentEndsNoLock(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	direct := net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port()))
	through := func(t *testing.T, addr string) string {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(server.DSN(), strconv.Itoa(server.Port()), port)
	}
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, direct, func(t *testing.T, addr string) locker.Locker {
			pool, err := pgxpool.New(t.Context(), through(t, addr))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return single.New(pgx.New(pool))
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, direct, func(t *testing.T, addr string) locker.Locker {
			db, err := sql.Open("pgx", through(t, addr))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return single.New(sqlstore.NewPostgreSQL(db))
		})
	})
}
