package pgxstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/counting"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/lockstep-go/lockstep/strategies/single"
)

var increments = flag.Int("increments", 300, "how many increments of the counter to make")

// Processes that are stopped for longer than their lease increment a counter in the database of the locks:
// they read it, and write the next number. Guarded, no increment is lost. Unguarded, a process that was
// stopped between the two overwrites what others have counted since.
func TestAGuardedCounterLosesNoIncrement(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		t.Run(map[bool]string{true: "guarded", false: "unguarded"}[guarded], func(t *testing.T) {
			t.Parallel()
			server := pgtest.Start(t, "fsync=off")
			pool := install(t, server.DSN())
			outside{t, pool}.exec("CREATE TABLE counter (n bigint NOT NULL)")
			outside{t, pool}.exec("INSERT INTO counter VALUES (0)")
			counting.Run(t, counting.Where{Store: "PostgreSQL", Module: "backends/pgxstore"}, guarded, *increments, func() (n int) {
				if err := pool.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}, "PGX_COUNTER="+server.DSN(), fmt.Sprintf("PGX_GUARDED=%v", guarded))
		})
	}
}

// TestProcess is a process that counts, or a rival of a campaign.
func TestProcess(t *testing.T) {
	if rivals.Process(t, openFor) {
		return
	}
	dsn := os.Getenv("PGX_COUNTER")
	if dsn == "" {
		t.Skip("it is for TestAGuardedCounterLosesNoIncrement and the campaigns")
	}
	pool := dial(t, dsn)
	store := pgxstore.New(pool)
	locks := locker.New(single.New(store), locker.WithTTL(counting.TTL))
	guarded, _ := strconv.ParseBool(os.Getenv("PGX_GUARDED"))
	counting.Process(t, func(ctx context.Context, told func()) error {
		return locks.Do(ctx, "counter", func(_ context.Context, l *locker.Lock) error {
			return increment(t.Context(), pool, store.Guard, l, guarded, told)
		})
	})
}

// increment reads, waits for a moment and writes. A commit whose outcome is unknown would be counted
// wrongly, so it ends the test.
func increment(
	ctx context.Context, pool *pgxpool.Pool, guard func(context.Context, sqlstore.Executor, contract.Lease) error, l *locker.Lock, guarded bool, told func(),
) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after Commit it does nothing
	var n int64
	if err := tx.QueryRow(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // the work
	if _, err := tx.Exec(ctx, "UPDATE counter SET n = $1", n+1); err != nil {
		return err
	}
	if guarded {
		if err := guard(ctx, pgxstore.InTx(tx), l.Lease()); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		panic(err) // whether it was counted is unknown
	}
	told()
	return nil
}
