package dialects_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/lostanswer"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/sessions"
)

const (
	same    = ""
	refused = "refused: "
)

func TestTheSettingsOfASessionChangeNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		dialect  dialect
		settings map[string]string // to how the store answers
	}{
		"MariaDB": {mariadb, map[string]string{
			"time_zone=%27%2B13%3A00%27": same,
			"time_zone=%27-11%3A30%27":   same,
			"sql_mode=%27%27":            same,
			"sql_mode=%27ANSI_QUOTES%2CNO_BACKSLASH_ESCAPES%2CPIPES_AS_CONCAT%27":                                  same,
			"sql_mode=%27TRADITIONAL%2CHIGH_NOT_PRECEDENCE%2CNO_UNSIGNED_SUBTRACTION%2CPAD_CHAR_TO_FULL_LENGTH%27": same,
			"timestamp=UNIX_TIMESTAMP()-30":       same,
			"timestamp=UNIX_TIMESTAMP()-3600":     refused,
			"timestamp=UNIX_TIMESTAMP()%2B30":     refused,
			"timestamp=1":                         refused,
			"autocommit=0":                        refused,
			"TX_ISOLATION=%27SERIALIZABLE%27":     same,
			"TX_ISOLATION=%27READ-UNCOMMITTED%27": same,
			"sql_mode=%27ORACLE%27":               same,
			"sql_mode=EMPTY_STRING_IS_NULL":       refused,
			"sql_safe_updates=1":                  same,
			"sql_auto_is_null=1":                  same,
			"div_precision_increment=0":           same,
			"innodb_lock_wait_timeout=1":          same,
			"charset=latin1":                      same,
			"collation=utf8mb4_bin":               same,
			"parseTime=true&loc=Local":            same,
			"clientFoundRows=true":                same,
			"multiStatements=true":                same,
		}},
		"SQLite": {sqlite, map[string]string{
			"_pragma=case_sensitive_like(1)":       same,
			"_pragma=foreign_keys(1)":              same,
			"_pragma=recursive_triggers(1)":        same,
			"_pragma=reverse_unordered_selects(1)": same,
			"_pragma=locking_mode(NORMAL)":         same,
			"_pragma=temp_store(2)":                same,
			"_pragma=cell_size_check(1)":           same,
			"_pragma=trusted_schema(0)":            same,
			"_pragma=read_uncommitted(1)":          same,
			"_pragma=legacy_alter_table(1)":        same,
			"_txlock=immediate":                    same,
			"_time_format=sqlite":                  same,
			"_pragma=query_only(1)":                refused,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := c.dialect.fresh(t)
			plain := db.session()
			for setting, want := range c.settings {
				if isMariaDBName := strings.Contains(setting, "TX_ISOLATION"); isMariaDBName {
					variable := "tx_isolation"
					if isMySQL(t, db) {
						variable = "transaction_isolation"
					}
					setting = strings.Replace(setting, "TX_ISOLATION", variable, 1)
				}
				mode := strings.Contains(setting, "ORACLE") || strings.Contains(setting, "IS_NULL")
				if mode && isMySQL(t, db) { // which has no such modes
					continue
				}
				odd := c.dialect.dial(t, db.dsn+"&"+setting)
				why := sessions.Same(t, odd.session(), plain)
				if strings.Contains(setting, "IS_NULL") && (why == nil || !strings.Contains(why.Error(), "EMPTY_STRING_IS_NULL")) {
					t.Errorf("%s: %v; want the mode to be named", setting, why)
				}
				if (why != nil) != (want == refused) {
					t.Errorf("%s: %v; want %q", setting, why, want)
				}
				if t.Failed() {
					t.Fatalf("with %s", setting)
				}
			}
		})
	}
}

func (db database) session() sessions.Session {
	store := db.store()
	return sessions.Session{Store: store, Guard: func(ctx context.Context, lease contract.Lease) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return store.Guard(ctx, sqlstore.InTx(tx), lease)
	}}
}

// Without a second clock, a session that sets its time can't be noticed.
func TestCheckFindsAServerWhoseSYSDATEIsNOW(t *testing.T) {
	db := mariadb.dial(t, mariadbtest.Start(t, "sysdate-is-now").DSN())
	if err := mariadb.install(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	r := check(t, db)
	wantProblems(t, r, sqlstore.ProblemClock)
	if r.Err() == nil || r.Err(sqlstore.ProblemClock) != nil {
		t.Errorf("Err = %v; want an unsafe finding", r.Err())
	}
}

// A session that has set its time back sees a lock that has ended as held, and gives one that ends at once.
func TestASessionThatSetsItsTimeGivesNoLockToTwoHolders(t *testing.T) {
	db := mariadb.fresh(t)
	for _, setting := range []string{"timestamp=UNIX_TIMESTAMP()-3600", "timestamp=UNIX_TIMESTAMP()-5"} {
		odd := mariadb.dial(t, db.dsn+"&"+setting).store()
		r, err := odd.SetNX(t.Context(), setting, "token", 3*time.Second)
		if err != nil {
			var p interface{ Permanent() bool }
			if !errors.As(err, &p) || !p.Permanent() || !strings.Contains(err.Error(), "timestamp") {
				t.Errorf("%s: %v; want a permanent error that names the variable", setting, err)
			}
			continue
		}
		var other backends.Result
		if other, err = db.store().SetNX(t.Context(), setting, "other", time.Second); err != nil || !r.OK || other.OK {
			t.Errorf("%s: granted %v, and then %v to another, %v", setting, r.OK, other.OK, err)
		}
	}
}

// A store asks before it adds a row, over another connection perhaps. If that adds the row, and nobody ever
// commits it, the lock is another's as soon as the connection is closed.
func TestAGrantOverAConnectionThatDoesNotCommitIsStoredOrNotTold(t *testing.T) {
	db := mariadb.fresh(t)
	pool := mariadb.dial(t, db.dsn)
	pool.SetMaxOpenConns(2)
	odd, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := odd.ExecContext(t.Context(), "SET autocommit = 0"); err != nil {
		t.Fatal(err)
	}
	_ = odd.Close()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range 3 { // the application uses its pool, so that a call gets either connection
		all.Go(func() {
			for {
				c, err := pool.Conn(ctx)
				if err != nil {
					return
				}
				_, _ = c.ExecContext(ctx, "DO SLEEP(0.002)")
				_ = c.Close()
			}
		})
	}
	store, others := pool.store(), db.store()
	granted := 0
	for i := range scale(40, 300) {
		key := fmt.Sprint("key", i)
		r, err := store.SetNX(t.Context(), key, "token", 25*time.Second)
		if err != nil || !r.OK {
			continue // it says that autocommit is off
		}
		granted++
		if s, err := others.Inspect(t.Context(), key); err != nil || s.Holding != 1 {
			t.Fatalf("%s was granted, and others see %d holders, %v", key, s.Holding, err)
		}
	}
	if granted == 0 {
		t.Error("no key was granted, so the test shows nothing")
	}
}

// The rows that a sweep reads would stay locked: their holders could neither renew nor release.
func TestASweepOverConnectionsThatDoNotCommitLocksNoRow(t *testing.T) {
	db := mariadb.fresh(t)
	holder := db.store()
	if r, err := holder.SetNX(t.Context(), "key", "token", 20*time.Second); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	outside{t, db}.exec("UPDATE lockstep_lock SET look = 1") // it is in use for more than an hour
	odd := mariadb.dial(t, db.dsn+"&autocommit=0")
	if err := odd.store().(sweeper).Sweep(t.Context()); err == nil || !strings.Contains(err.Error(), "autocommit") {
		t.Errorf("Sweep = %v; want an error that names autocommit", err)
	}
	for _, statement := range []string{"old", "remove", "later"} { // over a pool in which some connections have it off
		text, err := os.ReadFile("../mysql/" + statement + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		var argument any = "key"
		if statement == "old" {
			argument = 10
		}
		whole := strings.ReplaceAll(string(text), "{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))")
		if _, err := odd.ExecContext(t.Context(), whole, argument); err != nil {
			t.Fatal(statement, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if ok, err := holder.ExpireIf(ctx, "key", "token", 20*time.Second); err != nil || !ok {
		t.Errorf("a renewal = %v, %v; want the row not to be locked", ok, err)
	}
}

// The store uses the table in the database of the DSN, so Install makes or changes that one, and no other.
func TestAnInstallOverASessionThatHasLeftItsDatabaseMakesTheTableOfTheDSN(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) database{
		"no table":       func(t *testing.T) database { return mariadb.dial(t, mariadb.dsn(t)) },
		"an older table": func(t *testing.T) database { return older(t, mariadb) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.SetMaxOpenConns(1)
			outside{t, db}.exec("CREATE DATABASE `left for`")
			outside{t, db}.exec("USE `left for`")
			if err := mariadb.install(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			var tables int
			err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'left for'").Scan(&tables)
			if err != nil || tables > 0 {
				t.Errorf("%d tables in the database of the session, %v; want none", tables, err)
			}
			mustSet(t, db.store(), "k", "token", time.Hour)
			if r, err := db.store().Check(t.Context()); err != nil || r.Err(sqlstore.ProblemPersistence) != nil {
				t.Errorf("Check = %v, %v", r, err)
			}
		})
	}
}

// A session may find another table by the name of ours. It must not give a lock a second time.
func TestASessionWithAnotherTableOfTheSameNameLocksInNone(t *testing.T) {
	type opener func(t *testing.T) (database, string)
	use := func(t *testing.T, db database) string {
		t.Helper()
		outside{t, db}.exec("CREATE DATABASE IF NOT EXISTS `an``other`")
		other := mariadb.dial(t, strings.Replace(db.dsn, "/test?", "/an%60other?", 1))
		if err := mariadb.install(t.Context(), other.DB); err != nil {
			t.Fatal(err)
		}
		return "USE `an``other`"
	}
	for name, open := range map[string]opener{
		"MariaDB": func(t *testing.T) (database, string) {
			db := mariadb.fresh(t)
			return mariadb.dial(t, db.dsn), use(t, db)
		},
		"MariaDB, whose DSN is not known": func(t *testing.T) (database, string) {
			db := mariadb.fresh(t)
			wrapped, _ := lostanswer.Open(t, db.DB, db.dsn)
			return database{wrapped, db.dsn, mariadb}, use(t, db)
		},
		"SQLite": func(t *testing.T) (database, string) {
			return sqlite.fresh(t), "CREATE TEMP TABLE lockstep_lock AS SELECT * FROM main.lockstep_lock WHERE false"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, shadow := open(t)
			db.SetMaxOpenConns(1)
			s := db.store()
			ctx := t.Context()
			want := func(call string, got, want bool, err error) {
				t.Helper()
				if err != nil || got != want {
					t.Errorf("%s = %v, %v; want %v", call, got, err, want)
				}
			}
			const token = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			mustSet(t, s, "k", token, time.Hour)
			mustSet(t, s, "evicted", token, time.Hour)
			r, err := s.Enter(ctx, "permits", token, time.Hour, backends.Admission{Limit: 1})
			want("Enter", r.OK, true, err)
			if _, err := db.ExecContext(ctx, shadow); err != nil {
				t.Fatal(err)
			}
			r, err = s.SetNX(ctx, "k", "other", time.Hour)
			want("SetNX of another", r.OK, false, err)
			r, err = s.Enter(ctx, "permits", "other", time.Hour, backends.Admission{Limit: 1})
			want("Enter of another", r.OK, false, err)
			mustSet(t, s, "new", token, time.Hour)
			page, err := s.List(ctx, "", "", 10)
			want("List", len(page.Keys) == 4, true, err)
			report, err := s.Check(ctx)
			want("Check", report.Err(sqlstore.ProblemPersistence) == nil, true, err)
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Guard(ctx, sqlstore.InTx(tx), contract.Lease{Key: "k", Token: token})
			want("Guard", err == nil, true, err)
			_ = tx.Rollback()
			ok, err := s.ExpireIf(ctx, "k", token, time.Hour)
			want("ExpireIf", ok, true, err)
			ok, err = s.Renew(ctx, "permits", token, time.Hour)
			want("Renew", ok, true, err)
			ok, err = s.Evict(ctx, "evicted", backends.PrintOf(token), backends.Eviction{Now: true})
			want("Evict", ok, true, err)
			ok, err = s.DeleteIf(ctx, "k", token)
			want("DeleteIf", ok, true, err)
			ok, err = s.Leave(ctx, "permits", token)
			want("Leave", ok, true, err)
			want("Sweep", true, true, s.(sweeper).Sweep(ctx))
		})
	}
}
