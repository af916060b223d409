package stores

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
	_ "modernc.org/sqlite"
)

// rowStore is a store over database/sql that has no functions in the database.
type rowStore interface {
	backends.NumberedStore
	backends.SharedStore
}

func sqlite(tb testing.TB, synchronous string) (*sql.DB, rowStore) {
	tb.Helper()
	db := connect(tb, "sqlite", "file:"+filepath.Join(tb.TempDir(), "locks.db")+"?_pragma=busy_timeout(5000)&_pragma=synchronous("+synchronous+")")
	must(tb, sqlstore.InstallSQLite(context.Background(), db))
	return db, sqlstore.NewSQLite(db)
}

// mariadb starts a server that keeps each commit on disk.
func mariadb(tb testing.TB) (*sql.DB, rowStore) {
	tb.Helper()
	db := connect(tb, "mysql", mariadbtest.Start(tb).DSN()+"?interpolateParams=true")
	must(tb, sqlstore.InstallMySQL(context.Background(), db))
	return db, sqlstore.NewMySQL(db)
}

func connect(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	must(tb, err)
	db.SetMaxIdleConns(120)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// BenchmarkSQLitePair is BenchmarkPostgreSQLPair for SQLite. With synchronous NORMAL no commit waits for the
// disk, which only a power cut can tell; with FULL each does.
func BenchmarkSQLitePair(b *testing.B) {
	for _, synchronous := range []string{"NORMAL", "FULL"} {
		b.Run(synchronous, func(b *testing.B) {
			db, store := sqlite(b, synchronous)
			rowPair(b, db, store, "BLOB")
		})
	}
}

// BenchmarkMariaDBPair is BenchmarkPostgreSQLPair for MariaDB.
func BenchmarkMariaDBPair(b *testing.B) {
	db, store := mariadb(b)
	rowPair(b, db, store, "VARBINARY(100)")
}

func rowPair(b *testing.B, db *sql.DB, store rowStore, bytes string) {
	_, err := db.ExecContext(b.Context(), "CREATE TABLE raw (k "+bytes+" PRIMARY KEY)")
	must(b, err)
	measure(b, []contender{
		{"insert-delete", func(ctx context.Context) error {
			for _, s := range []string{"INSERT INTO raw VALUES (?)", "DELETE FROM raw WHERE k = ?"} {
				if _, err := db.ExecContext(ctx, s, []byte("key")); err != nil {
					return err
				}
			}
			return nil
		}},
		{"select", func(ctx context.Context) error {
			for range 2 {
				var one int
				if err := db.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
					return err
				}
			}
			return nil
		}},
		{"store", func(ctx context.Context) error {
			if r, err := store.SetNX(ctx, "stored", "token", time.Second); err != nil || !r.OK {
				return fmt.Errorf("%+v, %w", r, err)
			}
			_, err := store.DeleteIf(ctx, "stored", "token")
			return err
		}},
		{"single", throughClient(single.New(store))},
		{"fenced", throughClient(fenced.New(store))},
		{"semaphore", throughClient(semaphore.New(store, 5))},
	})
}

// BenchmarkSQLiteHandover and BenchmarkMariaDBHandover are BenchmarkPostgreSQLHandover for waiters that poll.
func BenchmarkSQLiteHandover(b *testing.B) {
	for _, waiters := range []int{1, 10} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			db, _ := sqlite(b, "NORMAL")
			takeTurns(b, waiters+1, func() func(context.Context) error { return throughClient(single.New(sqlstore.NewSQLite(db))) })
		})
	}
}

func BenchmarkMariaDBHandover(b *testing.B) {
	for _, waiters := range []int{1, 10} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			db, _ := mariadb(b)
			takeTurns(b, waiters+1, func() func(context.Context) error { return throughClient(single.New(sqlstore.NewMySQL(db))) })
		})
	}
}

// BenchmarkSQLiteGoroutines: so many goroutines of one program take locks of their own.
func BenchmarkSQLiteGoroutines(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, store := sqlite(b, "NORMAL")
			i := 0
			takeTurns(b, n, func() func(context.Context) error {
				i++
				key := fmt.Sprint(i)
				return func(ctx context.Context) error {
					if r, err := store.SetNX(ctx, key, "token", 10*time.Second); err != nil || !r.OK {
						return fmt.Errorf("%+v, %w", r, err)
					}
					_, err := store.DeleteIf(ctx, key, "token")
					return err
				}
			})
		})
	}
}
