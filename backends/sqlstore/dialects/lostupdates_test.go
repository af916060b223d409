package dialects_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/counting"
	"github.com/lockstep-go/lockstep/proof/rivals"
	"github.com/lockstep-go/lockstep/strategies/single"
)

var increments = flag.Int("increments", 300, "how many increments of the counter to make")

// Processes that are stopped for longer than their lease increment a counter in the database of the locks:
// they read it, and write the next number. Guarded, no increment is lost. Unguarded, a process that was
// stopped between the two overwrites what others have counted since.
func TestAGuardedCounterLosesNoIncrement(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		for name, guarded := range map[string]bool{"guarded": true, "unguarded": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := d.fresh(t)
				outside{t, db}.exec("CREATE TABLE counter (n BIGINT NOT NULL)")
				outside{t, db}.exec("INSERT INTO counter VALUES (0)")
				counting.Run(t, counting.Where{Store: db.kind(t), Module: "backends/sqlstore/dialects"}, guarded, *increments, func() (n int) {
					if err := db.QueryRowContext(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n
				}, "DIALECT="+d.name, "DSN="+db.dsn, "ROLE="+name)
			})
		}
	})
}

// TestProcess is a process of the tests with several of them.
func TestProcess(t *testing.T) {
	if rivals.Process(t, openFor) {
		return
	}
	role := os.Getenv("ROLE")
	if role == "" {
		t.Skip("it is for tests that start processes")
	}
	d := map[string]dialect{sqlite.name: sqlite, mariadb.name: mariadb}[os.Getenv("DIALECT")]
	db := d.dial(t, os.Getenv("DSN"))
	if role == "holder" {
		hold(t, db)
		return
	}
	s := db.store()
	if role == "taker" {
		fmt.Println("taken", takeMany(t, s))
		select {}
	}
	locks := locker.New(single.New(s), locker.WithTTL(counting.TTL))
	counting.Process(t, func(ctx context.Context, told func()) error {
		return locks.Do(ctx, "counter", func(_ context.Context, l *locker.Lock) error {
			return increment(t.Context(), db, s, l, role == "guarded", told)
		})
	})
}

// increment reads, waits for a moment, and writes in a transaction. The read is not in the transaction,
// since SQLite would refuse to write then if others had written since. A commit whose outcome is unknown
// would be counted wrongly, so it ends the test.
func increment(ctx context.Context, db database, s store, l *locker.Lock, guarded bool, told func()) error {
	var n int64
	if err := db.QueryRowContext(ctx, "SELECT n FROM counter").Scan(&n); err != nil {
		return err
	}
	time.Sleep(time.Millisecond) // the work
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	if _, err := tx.ExecContext(ctx, "UPDATE counter SET n = ?", n+1); err != nil {
		return err
	}
	if guarded {
		if err := s.Guard(ctx, sqlstore.InTx(tx), l.Lease()); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		panic(err) // whether it was counted is unknown
	}
	told()
	return nil
}
