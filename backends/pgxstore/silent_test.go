package pgxstore_test

import (
	"database/sql"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/silent"
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
		silent.Run(t, direct, func(t *testing.T, addr string) *sqlstore.PostgreSQL {
			pool, err := pgxpool.New(t.Context(), through(t, addr))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return pgxstore.New(pool)
		}, (*sqlstore.PostgreSQL).Check)
	})
	t.Run("Open", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, direct, func(t *testing.T, addr string) *sqlstore.PostgreSQL {
			s, pool, err := pgxstore.Open(t.Context(), through(t, addr))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return s
		}, (*sqlstore.PostgreSQL).Check)
	})
	t.Run("database/sql", func(t *testing.T) {
		t.Parallel()
		silent.Run(t, direct, func(t *testing.T, addr string) *sqlstore.PostgreSQL {
			db, err := sql.Open("pgx", through(t, addr))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			return sqlstore.NewPostgreSQL(db)
		}, (*sqlstore.PostgreSQL).Check)
	})
}
