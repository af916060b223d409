package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/daemon"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// application is the pool of an application with few connections.
func application(t testing.TB, dsn string, most int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = most
	pgxstore.Configure(config)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// occupy begins transactions of the application until all connections of its pool are used.
func occupy(t testing.TB, pool *pgxpool.Pool) (end func()) {
	t.Helper()
	var all []pgx.Tx
	for range pool.Config().MaxConns {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tx)
	}
	end = sync.OnceFunc(func() {
		for _, tx := range all {
			_ = tx.Rollback(context.Background())
		}
	})
	t.Cleanup(end) // the pool waits for it when it is closed
	return end
}

// connections counts those of the server that are not of the admin's pool.
func connections(t testing.TB, admin *pgxpool.Pool, where string) (n int) {
	t.Helper()
	err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> 'admin' AND "+where).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// pools are those of an application, with four connections. occupied begins transactions until all are used.
var pools = map[string]func(t testing.TB, dsn string) (l locker.Locker, occupied func() (end func())){
	"pgx": func(t testing.TB, dsn string) (locker.Locker, func() (end func())) {
		pool := application(t, dsn, 4)
		return single.New(pgxstore.New(pool)), func() (end func()) { return occupy(t, pool) }
	},
	"database/sql": func(t testing.TB, dsn string) (locker.Locker, func() (end func())) {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(4)
		return single.New(sqlstore.NewPostgreSQL(db)), func() (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			for range 4 - db.Stats().InUse { // one may be that of the wake-ups
				if _, err := db.BeginTx(ctx, nil); err != nil {
					t.Fatal(err)
				}
			}
			return cancel
		}
	},
}

// In full size the pool is used up for a minute.
func TestLocksOnAPoolThatTransactionsUseUpAreNotLost(t *testing.T) {
	for name, over := range pools {
		t.Run(name, func(t *testing.T) {
			trial.WhileBusy(t, 5*time.Second, func(t testing.TB, ttl time.Duration) { areNotLost(t, ttl, over) })
		})
	}
}

// Four requests, each in a transaction that then takes a lock, use up the pool: each waits for a connection
// that another one has. Their ctx has no end.
func TestALockInATransactionOnAPoolThatIsUsedUpEnds(t *testing.T) {
	for name, over := range pools {
		t.Run(name, func(t *testing.T) {
			trial.WhileBusy(t, 2*time.Second, func(t testing.TB, ttl time.Duration) {
				server := pgtest.Start(t, "fsync=off")
				install(t, server.DSN())
				l, occupied := over(t, server.DSN())
				end := occupied()
				locks := locker.New(l, locker.WithTTL(ttl))
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
				again, err := locks.Lock(t.Context(), "order/0", locker.WithWait(patience))
				if err != nil {
					t.Fatal(err)
				}
				if err := again.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock = %v", err)
				}
			})
		})
	}
}

func areNotLost(t testing.TB, ttl time.Duration, over func(t testing.TB, dsn string) (l locker.Locker, occupied func() (end func()))) {
	const held, tries = 12, 3 // on a busy machine an answer may be late, the likelier the more there are
	lives := 3 * ttl
	if full.Size() {
		lives = time.Minute
	}
	server := pgtest.Start(t, "fsync=off")
	admin := install(t, server.DSN()+" application_name=admin")
	l, occupied := over(t, server.DSN())
	locks := locker.New(l, locker.WithTTL(ttl))
	var all []*locker.Lock
	for i := range held {
		l, err := locks.Lock(t.Context(), fmt.Sprint("payment/", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	end := occupied()

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
	var from time.Time
	if err := admin.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&from); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprint("all locks live for ", lives), func() bool {
		var n int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM lockstep.lock WHERE kind = 1 AND expires > $1", from.Add(lives)).Scan(&n)
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
		var failed *locker.Error
		return errors.Is(err, context.DeadlineExceeded) && errors.As(err, &failed) && failed.ErrorType() == "pool_exhausted" &&
			backends.Unsent(err) && strings.Contains(err.Error(), "all 4 connections of the pool are in use")
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
	drained, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := locks.Drain(drained); err != nil {
		t.Errorf("Drain = %v; want nothing to be cleaned up", err)
	}
	eventually(t, "only connections of the pool are left", func() bool { return connections(t, admin, "true") <= 4 })
}

// Transactions of the application use up the pool, and have the rows of many locks. They must not keep the
// renewals of the other locks from their connections. If a transaction ends in time, its lock is kept.
func TestARenewalThatWaitsForATransactionHoldsUpNoOther(t *testing.T) {
	const connections, kept = 62, 2
	t.Run("pgx", func(t *testing.T) {
		trial.WhileBusy(t, 5*time.Second, func(t testing.TB, ttl time.Duration) {
			holdsUpNoOther(t, ttl, connections, func(dsn string) (*sqlstore.PostgreSQL, func() (sqlstore.Executor, func() error, error)) {
				pool := application(t, dsn, connections)
				return pgxstore.New(pool), func() (sqlstore.Executor, func() error, error) {
					tx, err := pool.Begin(t.Context())
					if err != nil {
						return nil, nil, err
					}
					end := sync.OnceValue(func() error { return tx.Rollback(context.Background()) })
					t.Cleanup(func() { _ = end() }) // the pool waits for it when it is closed
					return pgxstore.InTx(tx), end, nil
				}
			})
		})
	})
	t.Run("database/sql", func(t *testing.T) {
		trial.WhileBusy(t, 5*time.Second, func(t testing.TB, ttl time.Duration) {
			holdsUpNoOther(t, ttl, connections-kept, func(dsn string) (*sqlstore.PostgreSQL, func() (sqlstore.Executor, func() error, error)) {
				db, err := sql.Open("pgx", dsn)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { db.Close() })
				db.SetMaxOpenConns(connections)
				return sqlstore.NewPostgreSQL(db), func() (sqlstore.Executor, func() error, error) {
					tx, err := db.BeginTx(t.Context(), nil) // ends with the take
					if err != nil {
						return nil, nil, err
					}
					return sqlstore.InTx(tx), tx.Rollback, nil
				}
			})
		})
	})
}

// holdsUpNoOther lets each transaction lock the row of one lock, and holds four more.
func holdsUpNoOther(
	t testing.TB, ttl time.Duration, transactions int, over func(dsn string) (*sqlstore.PostgreSQL, func() (tx sqlstore.Executor, end func() error, err error)),
) {
	server := pgtest.Start(t, "fsync=off")
	admin := install(t, server.DSN()+" application_name=admin")
	store, begin := over(server.DSN())
	locks := locker.New(single.New(store), locker.WithTTL(ttl))
	var all []*locker.Lock
	for i := range transactions + 4 {
		l, err := locks.Lock(t.Context(), fmt.Sprint("k", i))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	guarded, free := all[:transactions], all[transactions:]
	var inTx []sqlstore.Executor
	var endLast func() error
	for range guarded {
		tx, end, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		inTx, endLast = append(inTx, tx), end
	}
	for i, l := range guarded {
		err := l.Extend(t.Context(), ttl)
		if err == nil {
			var one int
			err = inTx[i].Row(t.Context(), "SELECT 1 FROM lockstep.lock WHERE key = $1 FOR SHARE", []any{[]byte(l.Lease().Key)}, &one)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(ttl / 2) // the renewal of the last has met the row
	if err := endLast(); err != nil {
		t.Fatal(err)
	}
	last := len(guarded) - 1
	guarded, free = all[:last], all[last:]
	for _, l := range guarded { // until the leases have ended, since nobody can renew them
		select {
		case <-l.Context().Done():
		case <-time.After(patience):
			t.Fatalf("%s is not lost after %v", l.Lease().Key, patience)
		}
	}
	eventually(t, "the leases of the guarded locks end on the server too", func() bool {
		var n int
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM lockstep.lock WHERE kind = 1 AND expires > clock_timestamp()").Scan(&n)
		for _, l := range free {
			if err := l.Context().Err(); err != nil {
				t.Fatalf("%s is lost: %v", l.Lease().Key, context.Cause(l.Context()))
			}
		}
		return err == nil && n == len(free)
	})
}

// Each error is a line in the log of the server, and a guard may keep a row for long. A row that
// nobody has is told apart from one that is locked.
func TestACallThatMeetsALockedRowLeavesNoErrorInTheLog(t *testing.T) {
	const life = 30 * time.Second
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	pool := application(t, server.DSN(), 2)
	store := pgxstore.New(pool, pgxstore.WithoutWakes())
	if r, err := store.SetNX(t.Context(), "lock", "token", life); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if r, err := store.Enter(t.Context(), "holds", "token", life, backends.Admission{}); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	calls := map[string]func(ctx context.Context, key, hold string) (bool, error){
		"ExpireIf": func(ctx context.Context, key, _ string) (bool, error) {
			return store.ExpireIf(ctx, key, "token", life)
		},
		"Renew": func(ctx context.Context, _, key string) (bool, error) {
			return store.Renew(ctx, key, "token", life)
		},
		"DeleteIf": func(ctx context.Context, key, _ string) (bool, error) { return store.DeleteIf(ctx, key, "token") },
		"Leave":    func(ctx context.Context, _, key string) (bool, error) { return store.Leave(ctx, key, "token") },
	}
	guard, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guard.Rollback(context.Background()) }()
	if _, err := guard.Exec(t.Context(), "SELECT FROM lockstep.lock FOR SHARE"); err != nil {
		t.Fatal(err)
	}
	other, err := pool.Begin(t.Context()) // now calls have the connections of the reserve alone
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.Background()) }()
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		if ok, err := call(ctx, "lock", "holds"); ok || !errors.Is(err, context.DeadlineExceeded) || backends.Permanent(err) {
			t.Errorf("%s of a row that is locked = %v, %v", name, ok, err)
		}
		if ok, err := call(t.Context(), "none", "none"); ok || err != nil {
			t.Errorf("%s of a row that nobody has = %v, %v", name, ok, err)
		}
	}
	// The lock is another's: whatever its row waits for, the answer is known.
	for name, call := range map[string]func(ctx context.Context) (bool, error){
		"ExpireIf": func(ctx context.Context) (bool, error) { return store.ExpireIf(ctx, "lock", "other", life) },
		"DeleteIf": func(ctx context.Context) (bool, error) { return store.DeleteIf(ctx, "lock", "other") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if ok, err := call(ctx); ok || err != nil {
			t.Errorf("%s of another's lock = %v, %v", name, ok, err)
		}
	}
	if err := guard.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if guard, err = pool.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A foreign key to the row, and Guard, do this. It keeps no renewal waiting.
	if _, err := guard.Exec(t.Context(), "SELECT FROM lockstep.lock FOR KEY SHARE"); err != nil {
		t.Fatal(err)
	}
	for name, waits := range map[string]bool{"ExpireIf": false, "Renew": false, "DeleteIf": true, "Leave": true} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if waits {
			ctx, cancel = context.WithTimeout(ctx, 700*time.Millisecond)
		}
		if ok, err := calls[name](ctx, "lock", "holds"); ok == waits || errors.Is(err, context.DeadlineExceeded) != waits {
			t.Errorf("%s of a row whose key is shared = %v, %v", name, ok, err)
		}
		cancel()
	}
	if err := guard.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ExpireIf", "Renew", "DeleteIf", "Leave"} {
		if ok, err := calls[name](t.Context(), "lock", "holds"); !ok || err != nil {
			t.Errorf("%s = %v, %v", name, ok, err)
		}
	}
	server.With(func(p *daemon.Process) error {
		if n := strings.Count(p.Log(), "lock timeout"); n > 0 {
			t.Errorf("%d calls waited for a row, says the log:\n%s", n, p.Log())
		}
		return nil
	})
}

// A connection of the reserve that goes to another server than the pool renews nothing.
func TestARenewalCountsOnlyOnTheServerThatGrants(t *testing.T) {
	first := pgtest.Start(t, "fsync=off")
	admin := install(t, first.DSN())
	standby := first.Standby(t)
	awaitReplication(t, admin, 1)

	config, err := pgxpool.ParseConfig(first.DSN())
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	other, err := pgxpool.ParseConfig(standby.DSN())
	if err != nil {
		t.Fatal(err)
	}
	otherPool, err := pgxpool.NewWithConfig(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(otherPool.Close)

	store := sqlstore.PostgreSQLOver(pgxstore.Split(pool, otherPool), nil, sqlstore.WithMaxTTL(maxTTL))
	if r, err := store.SetNX(t.Context(), "k", "token", time.Minute); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	awaitReplication(t, admin, 1)
	standby.Promote()
	var before, after time.Time
	if err := otherPool.QueryRow(t.Context(), "SELECT expires FROM lockstep.lock WHERE key = 'k'").Scan(&before); err != nil {
		t.Fatal(err)
	}
	end := occupy(t, pool)
	time.AfterFunc(200*time.Millisecond, end) // the renewal waits for it
	if ok, err := store.ExpireIf(t.Context(), "k", "token", 10*time.Minute); err != nil || !ok {
		t.Errorf("ExpireIf = %v, %v", ok, err)
	}
	if err := otherPool.QueryRow(t.Context(), "SELECT expires FROM lockstep.lock WHERE key = 'k'").Scan(&after); err != nil || !after.Equal(before) {
		t.Errorf("the lock on the other server ends at %v, %v; want %v", after, err, before)
	}
	var left time.Duration
	if _, left, _ = (outside{t, admin}).Get("k"); left < 5*time.Minute {
		t.Errorf("the lock on the server that granted lives for %v; want 10m", left)
	}
}

func TestCheckFindsAPoolThatIsTooSmall(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	const lost = "those that are held are lost"
	for most, want := range map[int]bool{1: true, 2: true, 3: false} {
		db, err := sql.Open("pgx", server.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxOpenConns(most)
		for by, store := range map[string]*sqlstore.PostgreSQL{
			"pgx":          pgxstore.New(application(t, server.DSN(), int32(most)), pgxstore.WithoutWakes()),
			"database/sql": sqlstore.NewPostgreSQL(db),
		} {
			r, err := store.Check(trial.Patient(t))
			found := false
			for _, f := range r.Findings {
				// the store opens connections beside a pool of pgx
				found = found || f.Problem == sqlstore.ProblemPool && strings.Contains(f.Consequence, lost) == (by == "database/sql")
			}
			if err != nil || found != want || r.Err(sqlstore.ProblemPersistence) != nil {
				t.Errorf("%d connections of %s: %v, %v; want a finding: %v", most, by, r, err, want)
			}
		}
	}
}
