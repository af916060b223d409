package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// hog begins transactions of the application until all connections of its pool are used.
func hog(t testing.TB, db *sql.DB) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel) // ends the transactions
	free := db.Stats().MaxOpenConnections - db.Stats().InUse
	for range free {
		if _, err := db.BeginTx(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	return cancel
}

// In full size the pool is used up for a minute.
func TestLocksOnAPoolThatTransactionsUseUpAreNotLost(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		trial.WhileBusy(t, 5*time.Second, func(t testing.TB, ttl time.Duration) { areNotLost(t, d, ttl) })
	})
}

func areNotLost(t testing.TB, d dialect, ttl time.Duration) {
	const held, tries = 12, 3 // on a busy machine an answer may be late, the likelier the more there are
	lives := 3 * ttl
	if full.Size() {
		lives = time.Minute
	}
	db := d.fresh(t)
	app := d.dial(t, db.dsn)
	app.SetMaxOpenConns(4)
	locks := locker.New(single.New(app.store()), locker.WithTTL(ttl))
	var all []*locker.Lock
	for i := range held {
		l, err := locks.Lock(t.Context(), fmt.Sprint("payment/", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	end := hog(t, app.DB)

	attempts, unknown := 0, []error(nil)
	attempt := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := locks.TryLock(ctx, "another")
		if attempts++; !backends.Unsent(err) && !errors.Is(err, locker.ErrHeld) {
			unknown = append(unknown, err)
		}
		return err
	}
	var from int64
	if err := db.QueryRowContext(t.Context(), "SELECT "+db.dialect.now).Scan(&from); err != nil {
		t.Fatal(err)
	}
	within(t, lives+patience, fmt.Sprint("all locks live for ", lives), func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lockstep_lock WHERE kind = 1 AND expires > ?", from+lives.Microseconds()).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if err := l.Context().Err(); err != nil {
				t.Fatalf("%s is lost: %v", l.Lease().Key, context.Cause(l.Context()))
			}
		}
		if attempts < tries { // as the application does meanwhile
			_ = attempt()
		}
		return n == held
	})

	eventually(t, "an attempt says that the pool is used up", func() bool {
		err := attempt()
		var pool *sqlstore.PoolError
		return errors.As(err, &pool) && pool.Max == 4 && errors.Is(err, context.DeadlineExceeded) && backends.Unsent(err)
	})
	if len(unknown) > 0 {
		t.Errorf("%d of %d attempts do not say that nothing was done: %v", len(unknown), attempts, unknown[0])
	}
	for _, l := range all {
		if err := l.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	}
	end()
	eventually(t, "the application has all of its connections again", func() bool { return app.Stats().InUse == 0 })
}

// Four requests, each in a transaction that then takes a lock, use up the pool: each waits for a connection
// that another one has. Their ctx has no end.
func TestALockInATransactionOnAPoolThatIsUsedUpEnds(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		trial.WhileBusy(t, 2*time.Second, func(t testing.TB, ttl time.Duration) {
			app := d.dial(t, d.fresh(t).dsn)
			app.SetMaxOpenConns(4)
			end := hog(t, app.DB)
			locks := locker.New(single.New(app.store()), locker.WithTTL(ttl))
			var all sync.WaitGroup
			for i, take := range []func(context.Context, string, ...locker.Option) (*locker.Lock, error){locks.Lock, locks.Lock, locks.TryLock, locks.TryLock} {
				all.Go(func() {
					began := time.Now()
					l, err := take(context.Background(), fmt.Sprint("order/", i))
					pool, took := (*sqlstore.PoolError)(nil), time.Since(began)
					if !errors.As(err, &pool) || pool.Max != 4 || !backends.Unsent(err) {
						t.Errorf("Lock = %v, %v; want an error that says that the pool is used up and nothing was sent", l, err)
					}
					if took > ttl+2*time.Second {
						t.Errorf("Lock returned after %v; want it within its TTL of %v and 2 s", took, ttl)
					}
				})
			}
			all.Wait()
			end()
			l, err := locks.Lock(t.Context(), "order/0", locker.WithWait(patience))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
		})
	})
}

func TestAPoolThatIsTooSmallToShareKeepsNoConnectionFromTheApplication(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		for most := 1; most <= 4; most++ {
			app := d.dial(t, db.dsn)
			app.SetMaxOpenConns(most)
			store := app.store()
			l, err := locker.New(single.New(store)).Lock(t.Context(), fmt.Sprint(most))
			if err != nil {
				t.Fatal(err)
			}
			if kept, want := app.Stats().InUse, most/3; kept != want {
				t.Errorf("of %d connections %d are kept; want %d", most, kept, want)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			eventually(t, "no connection is kept", func() bool { return app.Stats().InUse == 0 })
			r, err := store.Check(trial.Patient(t))
			found := false
			for _, f := range r.Findings {
				found = found || f.Problem == sqlstore.ProblemPool && !f.Unsafe &&
					strings.Contains(f.Consequence, "no lock can be taken or renewed") && strings.Contains(f.Consequence, "SetMaxOpenConns")
			}
			if err != nil || found != (most < 3) {
				t.Errorf("Check of %d connections = %v, %v", most, r, err)
			}
		}
	})
}

// A waiter gives its connection back after each attempt. On a busy machine the connection may seem dead, and
// then there is another one.
func TestAProgramThatWaitsHasOneConnection(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		if _, err := locker.New(single.New(db.store())).Lock(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		trial.WhileBusy(t, time.Second, func(t testing.TB, wait time.Duration) {
			waiter := d.dial(t, db.dsn)
			locks := locker.New(single.New(waiter.store()))
			_, err := locks.Lock(t.Context(), "k", locker.WithWait(wait))
			var waited *locker.Error
			if !errors.As(err, &waited) || !errors.Is(err, locker.ErrHeld) || waited.Attempts < 2 {
				t.Fatalf("Lock = %v; want a wait with more than one attempt", err)
			}
			if s := waiter.Stats(); s.OpenConnections != 1 || s.MaxIdleClosed != 0 {
				t.Errorf("%d connections are open, and %d were too many to be kept; want one and none", s.OpenConnections, s.MaxIdleClosed)
			}
		})
	})
}

// Transactions of the application use up the pool, and have the rows of half of the locks. They
// must not keep the renewals of the other locks from their connections. If a transaction ends in
// time, its lock is kept, though the pool has no connection for its renewal.
func TestARenewalThatWaitsForATransactionHoldsUpNoOther(t *testing.T) {
	trial.WhileBusy(t, 2*time.Second, holdsUpNoOther)
}

func holdsUpNoOther(t testing.TB, ttl time.Duration) {
	const connections, kept = 12, 2
	db := mariadb.fresh(t)
	app := mariadb.dial(t, db.dsn)
	app.SetMaxOpenConns(connections)
	store := sqlstore.NewMySQL(app.DB)
	locks := locker.New(single.New(store), locker.WithTTL(ttl))
	var all []*locker.Lock
	for i := range 2 * (connections - kept) {
		l, err := locks.Lock(t.Context(), fmt.Sprint("k", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	guarded := all[:connections-kept]
	var transactions []*sql.Tx // end with the test at the latest
	for range guarded {
		tx, err := app.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		transactions = append(transactions, tx)
	}
	for i, l := range guarded {
		err := l.Extend(t.Context(), ttl)
		if err == nil {
			err = store.Guard(t.Context(), sqlstore.InTx(transactions[i]), l.Lease())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	last := len(guarded) - 1
	time.Sleep(ttl / 2) // the renewal of the last has met the row
	if err := transactions[last].Rollback(); err != nil {
		t.Fatal(err)
	}
	guarded, free := all[:last], all[last:]
	for _, l := range guarded { // until the leases have ended, since nobody can renew them
		select {
		case <-l.Context().Done():
		case <-time.After(patience):
			t.Fatalf("%s is not lost after %v", l.Lease().Key, patience)
		}
	}
	eventually(t, "the leases of the guarded locks end on the server too", func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lockstep_lock WHERE kind = 1 AND expires > "+db.dialect.now).Scan(&n)
		for _, l := range free {
			if err := l.Context().Err(); err != nil {
				t.Fatalf("%s is lost: %v", l.Lease().Key, context.Cause(l.Context()))
			}
		}
		return err == nil && n == len(free)
	})
}

// The application has all of the pool but one connection. A call that adds a key sweeps a few others, over the
// connection that it has itself.
func TestACallThatAddsAKeyNeedsNoOtherConnection(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		db.SetMaxOpenConns(3)
		locks := locker.New(single.New(db.store()))
		for range 2 {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
		}
		waited := db.Stats().WaitCount
		l, err := locks.TryLock(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		if more := db.Stats().WaitCount - waited; more > 0 {
			t.Errorf("the call has waited for another connection %d times", more)
		}
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
