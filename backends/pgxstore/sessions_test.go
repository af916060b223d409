package pgxstore_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/sessions"
	"github.com/lockstep-go/lockstep/proof/trial"
)

func TestTheSettingsOfASessionChangeNoAnswer(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	plain := sessionOn(install(t, server.DSN()))
	for _, setting := range []string{
		"bytea_output=escape",
		"timezone=Asia/Kathmandu",
		"timezone=America/New_York",
		"datestyle=German",
		"intervalstyle=postgres_verbose",
		"intervalstyle=sql_standard",
		"standard_conforming_strings=off",
		"backslash_quote=off",
		"escape_string_warning=off",
		"search_path=nowhere",
		"search_path=lockstep,pg_temp",
		"default_transaction_isolation=serializable",
		"default_transaction_isolation=repeatable\\ read",
		"extra_float_digits=-15",
		"client_encoding=UTF8",
		"client_encoding=LATIN1",
		"array_nulls=off",
		"transform_null_equals=on",
		"quote_all_identifiers=on",
		"lc_messages=C",
		"statement_timeout=20000",
		"lock_timeout=20000",
		"row_security=off",
		"synchronous_commit=off",
		"enable_indexscan=off",
		"jit=off",
		"plan_cache_mode=force_generic_plan",
		"plpgsql.variable_conflict=error",
		"check_function_bodies=off",
		"default_table_access_method=heap",
		"session_replication_role=replica",
	} {
		t.Run(setting, func(t *testing.T) {
			dsn := server.DSN() + " options='-c " + strings.ReplaceAll(setting, `\`, `\\`) + "'"
			refused := sessions.Same(t, sessionOn(dial(t, dsn)), plain)
			if refused != nil {
				t.Error(refused)
			}
			// simple: all values are text on the way, as with other drivers
			if strings.HasPrefix(setting, "standard_conforming") || strings.HasSuffix(setting, "LATIN1") {
				return // pgx refuses that by itself
			}
			db, err := sql.Open("pgx", dsn+" default_query_exec_mode=simple_protocol")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			store := sqlstore.NewPostgreSQL(db)
			guard := func(ctx context.Context, lease contract.Lease) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				return store.Guard(ctx, sqlstore.InTx(tx), lease)
			}
			if refused := sessions.Same(t, sessions.Session{Store: store, Guard: guard}, plain); refused != nil {
				t.Error(refused)
			}
		})
	}
	t.Run("default_transaction_read_only=on", func(t *testing.T) {
		store := pgxstore.New(dial(t, server.DSN()+" options='-c default_transaction_read_only=on'"), pgxstore.WithoutWakes())
		_, err := store.SetNX(t.Context(), "k", "token", maxTTL/1000)
		if err == nil || !strings.Contains(err.Error(), "nothing was done") {
			t.Errorf("SetNX = %v; want an error that says that nothing was done", err)
		}
		if r, err := store.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) == nil {
			t.Errorf("Check = %v, %v; want an unsafe finding", r, err)
		}
	})
}

func sessionOn(pool *pgxpool.Pool) sessions.Session {
	store := pgxstore.New(pool, pgxstore.WithoutWakes())
	return sessions.Session{Store: store, Guard: func(ctx context.Context, lease contract.Lease) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		return store.Guard(ctx, pgxstore.InTx(tx), lease)
	}}
}
