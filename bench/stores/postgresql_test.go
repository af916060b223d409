// Package stores measures the stores beside what their servers do for raw statements, and beside other
// locks on the same servers, in one run:
//
//	cd bench && go test -run '^$' -bench . -benchtime 2000x ./stores
package stores

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// A contender takes a lock and gives it back.
type contender struct {
	name string
	pair func(ctx context.Context) error
}

// postgres starts a server that keeps each commit on disk.
func postgres(tb testing.TB) (*pgxpool.Pool, *sqlstore.PostgreSQL) {
	tb.Helper()
	server := pgtest.Start(tb)
	config, err := pgxpool.ParseConfig(server.DSN())
	must(tb, err)
	config.MaxConns = 40
	pgxstore.Configure(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(tb, err)
	tb.Cleanup(pool.Close)
	must(tb, pgxstore.Install(context.Background(), pool))
	return pool, pgxstore.New(pool)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func throughClient(l locker.Locker) func(context.Context) error {
	locks := locker.New(l)
	return func(ctx context.Context) error {
		held, err := locks.Lock(ctx, "key")
		if err != nil {
			return err
		}
		return held.Unlock(ctx)
	}
}

// BenchmarkPostgreSQLPair: one goroutine takes a lock that nobody else wants, and gives it back. All take
// turns, so what the machine does meanwhile meets all alike. The figures are medians.
func BenchmarkPostgreSQLPair(b *testing.B) {
	pool, store := postgres(b)
	ctx := b.Context()
	statements := func(mode pgx.QueryExecMode, all ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, s := range all {
				if _, err := pool.Exec(ctx, s, mode, []byte("key")); err != nil {
					return err
				}
			}
			return nil
		}
	}
	_, err := pool.Exec(ctx, "CREATE TABLE raw (key bytea PRIMARY KEY)")
	must(b, err)
	session, err := pool.Acquire(ctx)
	must(b, err)
	defer session.Release()
	db := stdlib.OpenDBFromPool(pool)
	peer, err := pglock.UnsafeNew(db, pglock.WithHeartbeatFrequency(0))
	must(b, err)
	must(b, peer.CreateTable())
	measure(b, []contender{
		{"insert+delete", statements(pgx.QueryExecModeExec, "INSERT INTO raw VALUES ($1)", "DELETE FROM raw WHERE key = $1")},
		{"insert+delete-prepared", statements(pgx.QueryExecModeCacheStatement, "INSERT INTO raw VALUES ($1)", "DELETE FROM raw WHERE key = $1")},
		{"select-twice", statements(pgx.QueryExecModeExec, "SELECT $1::bytea", "SELECT $1::bytea")},
		{"store", func(ctx context.Context) error {
			if r, err := store.SetNX(ctx, "stored", "token", time.Second); err != nil || !r.OK {
				return fmt.Errorf("%+v, %w", r, err)
			}
			_, err := store.DeleteIf(ctx, "stored", "token")
			return err
		}},
		{"single", throughClient(single.New(store))},
		{"fenced", throughClient(fenced.New(store))},
		{"fair", throughClient(fair.New(store))},
		{"semaphore", throughClient(semaphore.New(pgxstore.New(pool, pgxstore.WithPrefix("shared/")), 5))},
		{"advisory-lock", func(ctx context.Context) error {
			for _, s := range []string{"SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"} {
				if _, err := session.Exec(ctx, s, pgx.QueryExecModeExec); err != nil {
					return err
				}
			}
			return nil
		}},
		{"pglock", func(ctx context.Context) error {
			l, err := peer.AcquireContext(ctx, "key")
			if err != nil {
				return err
			}
			return peer.ReleaseContext(ctx, l)
		}},
	})
}

// measure reports the median of each contender in µs, and how many times that of the first it is.
func measure(b *testing.B, all []contender) {
	b.Helper()
	took := make([][]time.Duration, len(all))
	for b.Loop() {
		for i, c := range all {
			began := time.Now()
			if err := c.pair(b.Context()); err != nil {
				b.Fatalf("%s: %v", c.name, err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	base := median(took[0])
	for i, c := range all {
		b.ReportMetric(float64(median(took[i]).Microseconds()), c.name+"-µs")
		b.ReportMetric(float64(median(took[i]))/float64(base), c.name+"-×")
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkPostgreSQLRefused: an attempt that finds the lock held, with the bytes that it writes ahead of
// the data, and its commits that write.
func BenchmarkPostgreSQLRefused(b *testing.B) {
	pool, store := postgres(b)
	if r, err := store.SetNX(b.Context(), "key", "holder", 20*time.Second); err != nil || !r.OK {
		b.Fatal(r, err)
	}
	before := written(b, pool)
	for b.Loop() {
		if r, err := store.SetNX(b.Context(), "key", "token", time.Second); err != nil || r.OK {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(float64(written(b, pool)-before)/float64(b.N), "WAL-bytes/op")
}

func written(tb testing.TB, pool *pgxpool.Pool) (bytes int64) {
	tb.Helper()
	must(tb, pool.QueryRow(context.Background(), "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").Scan(&bytes))
	return bytes
}

// BenchmarkPostgreSQLHandover: so many goroutines, each a program of its own, take one lock and give it
// back at once, all the time.
func BenchmarkPostgreSQLHandover(b *testing.B) {
	for _, waiters := range []int{1, 100} {
		for _, strategy := range []string{"single", "fair", "advisory-lock"} {
			b.Run(fmt.Sprintf("%s/%d", strategy, waiters), func(b *testing.B) {
				pool, _ := postgres(b)
				handover(b, pool, strategy, waiters+1)
			})
		}
	}
}

func handover(b *testing.B, pool *pgxpool.Pool, strategy string, n int) {
	takeTurns(b, n, func() func(context.Context) error {
		switch strategy {
		case "single":
			return throughClient(single.New(pgxstore.New(pool, pgxstore.WithPrefix("single/"))))
		case "fair":
			return throughClient(fair.New(pgxstore.New(pool, pgxstore.WithPrefix("fair/"))))
		}
		conn, err := pgx.ConnectConfig(b.Context(), pool.Config().ConnConfig)
		must(b, err)
		b.Cleanup(func() { _ = conn.Close(context.Background()) })
		return func(ctx context.Context) error {
			_, err := conn.Exec(ctx, "SELECT pg_advisory_lock(2)", pgx.QueryExecModeExec)
			if err == nil {
				_, err = conn.Exec(ctx, "SELECT pg_advisory_unlock(2)", pgx.QueryExecModeExec)
			}
			return err
		}
	})
}

// takeTurns measures how long it takes until the next of n goroutines has taken one lock and given it
// back. program makes what one of them does.
func takeTurns(b *testing.B, n int, program func() func(context.Context) error) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	turns := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		take := program()
		all.Go(func() {
			for ctx.Err() == nil {
				if err := take(ctx); err == nil {
					select {
					case turns <- struct{}{}:
					case <-ctx.Done():
					}
				}
			}
		})
	}
	for b.Loop() {
		<-turns
	}
	cancel()
	all.Wait()
}

// BenchmarkPostgreSQLIdleWaiters: 1,000 goroutines of 10 programs wait for 100 locks that nobody gives
// back. How many statements that takes.
func BenchmarkPostgreSQLIdleWaiters(b *testing.B) {
	pool, store := postgres(b)
	for i := range 100 {
		if r, err := store.SetNX(b.Context(), fmt.Sprint("idle/", i), "holder", 30*time.Second); err != nil || !r.OK {
			b.Fatal(r, err)
		}
	}
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	for range 10 {
		locks := locker.New(fair.New(pgxstore.New(pool, pgxstore.WithPrefix("idle/"))))
		for i := range 100 {
			all.Go(func() { _, _ = locks.Lock(ctx, fmt.Sprint(i)) })
		}
	}
	for b.Loop() { // once: time passes
		time.Sleep(5 * time.Second)
		began, before := time.Now(), commits(b, pool)
		time.Sleep(10 * time.Second)
		b.ReportMetric(float64(commits(b, pool)-before)/time.Since(began).Seconds(), "statements/s")
	}
	cancel()
	all.Wait()
}

func commits(tb testing.TB, pool *pgxpool.Pool) (n int64) {
	tb.Helper()
	must(tb, pool.QueryRow(context.Background(), "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
	return n
}
