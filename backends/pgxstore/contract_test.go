package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func dial(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 30
	pgxstore.Configure(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func install(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool := dial(t, dsn)
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

// outside reads and changes the tables past the store.
type outside struct {
	t    testing.TB
	pool *pgxpool.Pool
}

func (o outside) exec(statement string, args ...any) {
	o.t.Helper()
	if _, err := o.pool.Exec(context.Background(), statement, args...); err != nil {
		o.t.Errorf("%s: %v", statement, err)
	}
}

func (o outside) Get(key string) (value string, left time.Duration, ok bool) {
	o.t.Helper()
	var text []byte
	var us int64
	err := o.pool.QueryRow(context.Background(), `SELECT CASE WHEN kind = 1 THEN value ELSE '' END,
		CASE WHEN expires = 'infinity' THEN 0 ELSE (extract(epoch FROM expires - clock_timestamp()) * 1000000)::bigint END
		FROM lockstep.lock WHERE key = $1 AND kind <> 0 AND expires > clock_timestamp()`, []byte(key)).Scan(&text, &us)
	if err != nil {
		return "", 0, false
	}
	return string(text), time.Duration(us) * time.Microsecond, true
}

func (o outside) store(key string, kind int, value string, ttl time.Duration) {
	o.t.Helper()
	expires := "'infinity'"
	if ttl > 0 {
		expires = fmt.Sprintf("clock_timestamp() + interval '%d microseconds'", ttl.Microseconds())
	}
	// in one transaction: a waiter may be quick
	err := pgx.BeginFunc(context.Background(), o.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO lockstep.lock (key, kind, value, expires) VALUES ($1, $2, $3, `+expires+`)
			ON CONFLICT (key) DO UPDATE SET kind = excluded.kind, value = excluded.value, expires = excluded.expires`, []byte(key), kind, []byte(value))
		if err == nil {
			_, err = tx.Exec(context.Background(), `DELETE FROM lockstep.hold WHERE key = $1`, []byte(key))
		}
		return err
	})
	if err != nil {
		o.t.Errorf("store %q: %v", key, err)
	}
}

func (o outside) Set(key, value string, ttl time.Duration) { o.t.Helper(); o.store(key, 1, value, ttl) }
func (o outside) SetOther(key string)                      { o.t.Helper(); o.store(key, 9, "", 0) }
func (o outside) SetShared(key string)                     { o.t.Helper(); o.store(key, 3, "", 0) }
func (o outside) Delete(key string) {
	o.t.Helper()
	o.exec(`DELETE FROM lockstep.lock WHERE key = $1`, []byte(key))
}

const maxTTL = time.Hour

func TestContract(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	pool := install(t, server.DSN())
	start := func(t *testing.T) (*sqlstore.PostgreSQL, outside) {
		return pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), outside{t, pool}
	}
	t.Run("Store", func(t *testing.T) {
		backendtest.Run(t, backendtest.Harness{MaxTTL: maxTTL, New: func(t *testing.T) (backends.Store, backendtest.Outside) { return start(t) }})
	})
	t.Run("QueuedStore", func(t *testing.T) {
		backendtest.RunQueued(t, backendtest.QueuedHarness{MaxTTL: maxTTL, New: func(t *testing.T) (backends.QueuedStore, backendtest.Outside) { return start(t) }})
	})
	t.Run("NumberedStore", func(t *testing.T) {
		backendtest.RunNumbered(t, backendtest.NumberedHarness{MaxTTL: maxTTL, Clock: true, New: func(t *testing.T) (backends.NumberedStore, backendtest.Outside) { return start(t) }})
	})
	t.Run("FencedStore", func(t *testing.T) {
		backendtest.RunFenced(t, backendtest.FencedHarness{MaxTTL: maxTTL, Clock: true, New: func(t *testing.T) (backends.FencedStore, backendtest.Outside) { return start(t) }})
	})
	t.Run("OrderedStore", func(t *testing.T) {
		backendtest.RunOrdered(t, backendtest.OrderedHarness{MaxTTL: maxTTL, New: func(t *testing.T) (backends.OrderedStore, backendtest.SharedOutside) { return start(t) }})
	})
	t.Run("Inspector", func(t *testing.T) {
		backendtest.RunInspector(t, backendtest.InspectorHarness{MaxTTL: maxTTL, New: func(t *testing.T) (backendtest.InspectedStore, backendtest.SharedOutside) { return start(t) }})
	})
	t.Run("TransferStore", func(t *testing.T) {
		backendtest.RunTransfer(t, backendtest.TransferHarness{MaxTTL: maxTTL, New: func(t *testing.T) (backends.TransferStore, backendtest.SharedOutside) { return start(t) }})
	})
	t.Run("Guard", func(t *testing.T) {
		backendtest.RunGuard(t, backendtest.GuardHarness{MaxTTL: maxTTL, New: func(t *testing.T) (backendtest.GuardedStore, backendtest.SharedOutside) {
			store, outside := start(t)
			return transactions{store, pool}, outside
		}})
	})
	t.Run("Guard through database/sql", func(t *testing.T) {
		backendtest.RunGuard(t, backendtest.GuardHarness{MaxTTL: maxTTL, New: func(t *testing.T) (backendtest.GuardedStore, backendtest.SharedOutside) {
			db := stdlib.OpenDBFromPool(pool)
			t.Cleanup(func() { _ = db.Close() })
			_, outside := start(t)
			return standard{sqlstore.NewPostgreSQL(db, sqlstore.WithMaxTTL(maxTTL)), db}, outside
		}})
	})
}

// polled is what a store over database/sql has: no queue, and no Watch.
type polled interface {
	backends.NumberedStore
	backends.FencedStore
	backends.TransferStore
	backends.SharedTransferStore
}

// polling hides the other methods.
type polling struct{ polled }

// Over database/sql the store sends its statements another way. The suite of an Inspector takes a store without
// a queue for one that doesn't know how many wait. This one knows: those of programs over pgx.
func TestContractOverDatabaseSQL(t *testing.T) {
	full.Only(t)
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	start := func(t *testing.T) (polling, outside) {
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		return polling{sqlstore.NewPostgreSQL(db, sqlstore.WithMaxTTL(maxTTL))}, outside{t, pool}
	}
	t.Run("Store", func(t *testing.T) {
		backendtest.Run(t, backendtest.Harness{MaxTTL: maxTTL, NoWatch: true, New: func(t *testing.T) (backends.Store, backendtest.Outside) { return start(t) }})
	})
	t.Run("NumberedStore", func(t *testing.T) {
		backendtest.RunNumbered(t, backendtest.NumberedHarness{MaxTTL: maxTTL, NoWatch: true, NoQueue: true, Clock: true,
			New: func(t *testing.T) (backends.NumberedStore, backendtest.Outside) { return start(t) }})
	})
	t.Run("FencedStore", func(t *testing.T) {
		backendtest.RunFenced(t, backendtest.FencedHarness{MaxTTL: maxTTL, NoWatch: true, Clock: true,
			New: func(t *testing.T) (backends.FencedStore, backendtest.Outside) { return start(t) }})
	})
	t.Run("SharedStore", func(t *testing.T) {
		backendtest.RunShared(t, backendtest.SharedHarness{MaxTTL: maxTTL, NoWatch: true,
			New: func(t *testing.T) (backends.SharedStore, backendtest.SharedOutside) { return start(t) }})
	})
	t.Run("TransferStore", func(t *testing.T) {
		backendtest.RunTransfer(t, backendtest.TransferHarness{MaxTTL: maxTTL, NoWatch: true,
			New: func(t *testing.T) (backends.TransferStore, backendtest.SharedOutside) { return start(t) }})
	})
}

// transactions are those of an application that are guarded.
type transactions struct {
	*sqlstore.PostgreSQL
	pool *pgxpool.Pool
}

func (s transactions) Isolations() []string {
	return []string{string(pgx.ReadCommitted), string(pgx.RepeatableRead), string(pgx.Serializable)}
}

func (s transactions) Begin(ctx context.Context, isolation string) (commit func(key, token string, shared bool, between func()) error, err error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(isolation)})
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "SELECT count(*) FROM pg_class"); err != nil {
		return nil, err
	}
	return func(key, token string, _ bool, between func()) error {
		if err := s.Guard(ctx, pgxstore.InTx(tx), contract.Lease{Key: key, Token: token}); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		between()
		return tx.Commit(ctx)
	}, nil
}

// standard has the transactions of database/sql.
type standard struct {
	*sqlstore.PostgreSQL
	db *sql.DB
}

var isolations = map[string]sql.IsolationLevel{
	"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
}

func (s standard) Isolations() []string { return slices.Sorted(maps.Keys(isolations)) }

func (s standard) Begin(ctx context.Context, isolation string) (commit func(key, token string, shared bool, between func()) error, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: isolations[isolation]})
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "SELECT count(*) FROM pg_class"); err != nil {
		return nil, err
	}
	return func(key, token string, _ bool, between func()) error {
		if err := s.Guard(ctx, sqlstore.InTx(tx), contract.Lease{Key: key, Token: token}); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		between()
		return tx.Commit()
	}, nil
}
