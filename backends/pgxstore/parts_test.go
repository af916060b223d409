package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// The cases are made from the catalog of a fresh installation, so none can be forgotten here. Each is undone.
func TestCheckFindsEachPartThatIsMissing(t *testing.T) {
	pool := install(t, pgtest.Start(t).DSN())
	for _, statement := range append([]string{"CREATE ROLE app", "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA lockstep FROM PUBLIC"}, split(sqlstore.PostgreSQLGrants("app"))...) {
		outside{t, pool}.exec(statement)
	}
	cases := map[string]int{}
	changes, err := pool.Query(t.Context(), `
		SELECT 'UNLOGGED', format('ALTER TABLE lockstep.%I SET UNLOGGED', tablename), 'UNLOGGED: lockstep.' || tablename
			FROM pg_tables WHERE schemaname = 'lockstep'
		UNION ALL SELECT 'table', format('ALTER TABLE lockstep.%I RENAME TO gone', tablename), format('lockstep.%s is missing', tablename)
			FROM pg_tables WHERE schemaname = 'lockstep'
		UNION ALL SELECT 'column', format('ALTER TABLE lockstep.%I RENAME COLUMN %I TO gone', relname, attname), format('lockstep.%s.%s is missing', relname, attname)
			FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
			WHERE relnamespace = 'lockstep'::regnamespace AND relkind = 'r' AND attnum > 0
		UNION ALL SELECT 'attribute', format('ALTER TYPE lockstep.%I RENAME ATTRIBUTE %I TO gone', relname, attname), format('lockstep.%s.%s is missing', relname, attname)
			FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
			WHERE relnamespace = 'lockstep'::regnamespace AND relkind = 'c' AND attnum > 0
		UNION ALL SELECT 'index', CASE WHEN conname IS NULL THEN format('DROP INDEX lockstep.%I', i.relname)
				ELSE format('ALTER TABLE lockstep.%I DROP CONSTRAINT %I', r.relname, conname) END, format('the index lockstep.%s (', r.relname)
			FROM pg_index JOIN pg_class AS i ON i.oid = indexrelid JOIN pg_class AS r ON r.oid = indrelid LEFT JOIN pg_constraint ON conindid = i.oid
			WHERE i.relnamespace = 'lockstep'::regnamespace
		UNION ALL SELECT 'function', format('ALTER FUNCTION %s RENAME TO gone', p.oid::regprocedure), format('lockstep.%s(', proname)
			FROM pg_proc AS p WHERE pronamespace = 'lockstep'::regnamespace
		UNION ALL SELECT 'body', format('UPDATE pg_proc SET prosrc = prosrc || '' '' WHERE oid = %s', oid::int8), format('lockstep.%s(', proname)
			FROM pg_proc WHERE pronamespace = 'lockstep'::regnamespace
		UNION ALL SELECT 'argument', format('UPDATE pg_proc SET proargnames[1] = ''gone'' WHERE oid = %s', oid::int8), format('lockstep.%s(', proname)
			FROM pg_proc WHERE pronamespace = 'lockstep'::regnamespace AND proargnames IS NOT NULL
		UNION ALL SELECT 'default', format('UPDATE pg_proc SET pronargdefaults = 0, proargdefaults = NULL WHERE oid = %s', oid::int8), format('lockstep.%s(', proname)
			FROM pg_proc WHERE pronamespace = 'lockstep'::regnamespace AND pronargdefaults > 0
		UNION ALL SELECT 'right', format('REVOKE %s ON lockstep.%I FROM app; SET LOCAL ROLE app', named, tablename),
				format('the role app lacks %s on lockstep.%s', named, tablename)
			FROM pg_tables CROSS JOIN unnest('{SELECT, INSERT, UPDATE, DELETE}'::text[]) AS named
			WHERE schemaname = 'lockstep' AND tablename <> 'version'
		UNION ALL SELECT 'call', format('REVOKE EXECUTE ON FUNCTION %s FROM app; SET LOCAL ROLE app', p.oid::regprocedure),
				format('the role app lacks EXECUTE on lockstep.%s(', proname)
			FROM pg_proc AS p WHERE pronamespace = 'lockstep'::regnamespace
		UNION ALL SELECT 'type', 'ALTER TABLE lockstep.number ALTER COLUMN last TYPE int', 'lockstep.number.last is another one'
		UNION ALL SELECT 'schema', 'DROP SCHEMA lockstep CASCADE', 'the tables of the locks are missing'`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(changes, pgx.RowToStructByPos[struct{ Kind, Change, Want string }])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		cases[c.Kind]++
		problem := sqlstore.ProblemInstall
		if c.Kind == "UNLOGGED" {
			problem = sqlstore.ProblemPersistence
		}
		wantFinding(t, pool, c.Change, problem, c.Want)
	}
	for kind, least := range map[string]int{"UNLOGGED": 5, "table": 5, "column": 21, "attribute": 4, "index": 6, "function": 36, "body": 36, "argument": 35, "default": 1, "right": 20, "call": 36} {
		if cases[kind] < least {
			t.Errorf("%d cases of the kind %s; want %d or more", cases[kind], kind, least)
		}
	}
}

var errUndo = errors.New("undo")

// wantFinding makes a change, looks for one unsafe finding, and undoes the change.
func wantFinding(t *testing.T, pool interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}, change string, problem backends.Problem, want string) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), change); err != nil {
			return fmt.Errorf("%s: %w", change, err)
		}
		r, err := sqlstore.PostgreSQLOver(pgxstore.Within(pgxstore.InTx(tx)), nil).Check(trial.Patient(t))
		if err != nil {
			return err
		}
		if f := r.Findings; len(f) != 1 || f[0].Problem != problem || !f[0].Unsafe || !strings.Contains(f[0].Detail, want) {
			t.Errorf("after %s Check found %v; want %s with the words %q", change, r.Findings, problem, want)
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Error(err)
	}
}

// Programs install at each start. An ALTER TABLE that changes nothing would still wait for transactions, and
// all calls would wait behind it.
func TestInstallWaitsForNoTransactionIfAllIsThere(t *testing.T) {
	pool := install(t, pgtest.Start(t).DSN())
	for _, lock := range []string{"ACCESS SHARE", "ROW EXCLUSIVE"} {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "LOCK TABLE lockstep.lock, lockstep.number, lockstep.hold, lockstep.waiter, lockstep.watcher IN "+lock+" MODE"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := pgxstore.Install(ctx, pool); err != nil {
			t.Errorf("Install beside a transaction with %s = %v", lock, err)
		}
		cancel()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
