package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Somebody locks the whole table, while transactions of the application use up the pool, and others wait
// for a connection. Nothing can be renewed then. No lock is lost if that is over before the leases end: calls
// that leave meanwhile must not cost the connections of the reserve, which the application would get.
func TestALockOfTheWholeTableCostsNoLockIfItEndsInTime(t *testing.T) {
	const most = 6
	for name, over := range map[string]func(t testing.TB, dsn string) (store *sqlstore.PostgreSQL, occupied func() (end func())){
		"pgx": func(t testing.TB, dsn string) (*sqlstore.PostgreSQL, func() (end func())) {
			pool := application(t, dsn, most)
			return pgxstore.New(pool), func() (end func()) { return occupy(t, pool) }
		},
		"database/sql": func(t testing.TB, dsn string) (*sqlstore.PostgreSQL, func() (end func())) {
			db, err := sql.Open("pgx", dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(most)
			return sqlstore.NewPostgreSQL(db), func() (end func()) { return useUp(t, db) }
		},
	} {
		for _, mode := range []string{"EXCLUSIVE", "ACCESS EXCLUSIVE"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				trial.WhileBusy(t, 3*time.Second, func(t testing.TB, ttl time.Duration) {
					server := pgtest.Start(t, "fsync=off")
					store, occupied := over(t, server.DSN())
					whileTheTableIsLocked(t, ttl, mode, install(t, server.DSN()+" application_name=admin"), store, occupied)
					server.With(func(p *daemon.Process) error {
						if strings.Contains(p.Log(), "lock timeout") || strings.Contains(p.Log(), "could not obtain lock") {
							t.Errorf("calls that met the lock are in the log:\n%s", p.Log())
						}
						return nil
					})
				})
			})
		}
	}
}

func whileTheTableIsLocked(
	t testing.TB, ttl time.Duration, mode string, admin *pgxpool.Pool, store *sqlstore.PostgreSQL, occupied func() (end func()),
) {
	locks := locker.New(single.New(store), locker.WithTTL(ttl))
	var all []*locker.Lock
	for i := range 8 {
		l, err := locks.Lock(t.Context(), fmt.Sprint("k", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	end := occupied()
	defer end()
	for _, l := range all { // on the connections of the reserve
		if err := l.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
	}
	before := clients(t, admin)
	began := time.Now()
	err := pgx.BeginFunc(t.Context(), admin, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE lockstep.lock IN "+mode+" MODE"); err != nil {
			return err
		}
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := all[0].Extend(ctx, ttl); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Extend = %v; want the end of its ctx", err)
			}
		}
		time.Sleep(time.Until(began.Add(ttl * 2 / 5))) // renewals have met the lock
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var now time.Time
	if err := admin.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all locks live on", func() bool {
		for _, l := range all {
			if err := l.Context().Err(); err != nil {
				t.Fatalf("%s is lost: %v", l.Lease().Key, context.Cause(l.Context()))
			}
		}
		var n int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM lockstep.lock WHERE kind = 1 AND expires > $1", now.Add(2*ttl)).Scan(&n)
		return err == nil && n == len(all)
	})
	after := clients(t, admin)
	for _, pid := range before {
		if !slices.Contains(after, pid) {
			t.Errorf("the connections of the processes %v have become %v; want none closed", before, after)
		}
	}
	for _, l := range all {
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
}

// clients are the processes of the server that serve connections, but for those of the admin.
func clients(t testing.TB, admin *pgxpool.Pool) []int32 {
	t.Helper()
	rows, err := admin.Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'admin'")
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// useUp begins transactions until the pool has no connection left. Others wait for one.
func useUp(t testing.TB, db *sql.DB) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begin := func() error {
		_, err := db.BeginTx(ctx, nil) // ends with ctx
		return err
	}
	for range db.Stats().MaxOpenConnections - db.Stats().InUse { // the others are those of the reserve
		if err := begin(); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for range 2 * db.Stats().MaxOpenConnections {
		all.Go(func() { _ = begin() })
	}
	eventually(t, "the transactions wait for a connection", func() bool { return db.Stats().WaitCount > 0 })
	return sync.OnceFunc(func() { cancel(); all.Wait() })
}
