package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

func check(t *testing.T, db database) sqlstore.Report {
	t.Helper()
	r, err := db.store().Check(trial.Patient(t))
	if err != nil {
		t.Fatal(err)
	}
	if file := db.dialect.driver == "sqlite"; r.Version == "" || (r.Role == "") != file {
		t.Errorf("Check = %v; want a version, and a role of a server", r)
	}
	return r
}

func TestCheckOfSQLite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	good := "file:" + file + "?_pragma=busy_timeout(5000)&_pragma=synchronous(NORMAL)"
	db := sqlite.dial(t, good)
	wantProblems(t, check(t, db), sqlstore.ProblemInstall, sqlstore.ProblemPersistence)
	if err := sqlite.install(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, check(t, db))
	wantProblems(t, check(t, sqlite.dial(t, "file:"+file+"?_pragma=synchronous(OFF)")), sqlstore.ProblemPersistence, sqlstore.ProblemBusy)

	for dsn, want := range map[string]backends.Problem{
		"file:?mode=memory&_pragma=busy_timeout(5000)":                                                                sqlstore.ProblemFile,
		"file:" + filepath.Join(t.TempDir(), "other.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(MEMORY)": sqlstore.ProblemPersistence,
	} {
		db := sqlite.dial(t, dsn)
		db.SetMaxOpenConns(1)
		if _, err := db.ExecContext(t.Context(), sqlstore.SQLiteSchema()); err != nil {
			t.Fatal(err)
		}
		r := check(t, db)
		wantProblems(t, r, want, sqlstore.ProblemPool)
		if r.Err() == nil || r.Err(want) != nil {
			t.Errorf("%s: Err = %v; want an unsafe finding", dsn, r.Err())
		}
	}
}

func TestCheckOfMariaDB(t *testing.T) {
	good := mariadbtest.Start(t, "log-bin", "sync-binlog=1", "server-id=1")
	db := mariadb.dial(t, good.DSN())
	wantProblems(t, check(t, db), sqlstore.ProblemInstall)
	if err := mariadb.install(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	r := check(t, db)
	wantProblems(t, r)
	if r.Err() != nil || r.Role != "master" {
		t.Errorf("Check = %v; want a master without unsafe findings", r)
	}

	// MySQL has no Aria, and MyISAM takes no key as long as this one
	outside{t, db}.exec("ALTER TABLE lockstep_lock DROP PRIMARY KEY, ENGINE = MyISAM")
	outside{t, db}.exec("SET GLOBAL read_only = ON")
	outside{t, db}.exec("SET GLOBAL sync_binlog = 0")
	isolation := "tx_isolation"
	if isMySQL(t, db) {
		isolation = "transaction_isolation"
	}
	for _, level := range []string{"0", "2"} {
		outside{t, db}.exec("SET GLOBAL innodb_flush_log_at_trx_commit = " + level)
		bad := mariadb.dial(t, good.DSN()+"?autocommit=0&"+isolation+"=%27SERIALIZABLE%27")
		r = check(t, bad)
		wantProblems(t, r, "install", "role", "persistence", "transactions", "persistence", "persistence", "isolation")
		if r.Role != "replica" || r.Err() == nil {
			t.Errorf("Check = %v; want a replica, and findings that are unsafe", r)
		}
	}
	if id, err := db.store().Identify(trial.Patient(t)); err != nil || id.Role != "replica" {
		t.Errorf("Identify = %+v, %v; want a replica", id, err)
	}
}

// A replica that follows a server is seen by it.
func TestCheckOfMariaDBCountsItsReplicas(t *testing.T) {
	first := mariadbtest.Start(t, "log-bin", "sync-binlog=1", "server-id=1")
	db := mariadb.dial(t, first.DSN())
	if err := mariadb.install(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	second := mariadb.dial(t, mariadbtest.Start(t, "server-id=2", "read-only").DSN())
	follow(t, second, first)
	var r sqlstore.Report
	eventually(t, "the replica is connected", func() bool {
		r = check(t, db)
		return r.Standbys == 1
	})
	wantProblems(t, r, sqlstore.ProblemReplicas)
	if r.Err() != nil {
		t.Errorf("Err = %v; want nothing unsafe", r.Err())
	}
	eventually(t, "the table is on the replica", func() bool {
		var n int
		err := second.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lockstep_lock").Scan(&n)
		return err == nil
	})
	wantProblems(t, check(t, second), sqlstore.ProblemRole)
	_, err := second.store().SetNX(t.Context(), "k", "token", time.Second)
	if err == nil { // root may write
		outside{t, second}.exec("CREATE USER app")
		outside{t, second}.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON test.* TO app")
		app := mariadb.dial(t, strings.Replace(second.dsn, "root@", "app@", 1))
		_, err = app.store().SetNX(t.Context(), "other", "token", time.Second)
	}
	wantClass(t, "SetNX on a replica", err, false, true)
}

func TestCheckOfMariaDBTellsHowLongACommitWaitsForAReplica(t *testing.T) {
	t.Parallel()
	p := startPair(t, time.Hour)
	db := p.dial(p.primary)
	if err := mariadb.install(t.Context(), db.db.DB); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, check(t, db.db))
	// found sets a variable, and wants findings that are not unsafe, the last of which names the variable.
	found := func(name string, to int, want ...string) {
		t.Helper()
		db.set(name, to)
		r := check(t, db.db)
		wantProblems(t, r, slices.Repeat([]backends.Problem{sqlstore.ProblemReplicas}, len(want))...)
		for _, want := range append(want, db.variable(name)+" is ") {
			if r.Err() != nil || !strings.Contains(r.String(), want) {
				t.Errorf("Check = %v; want %q", r, want)
			}
		}
	}
	hour := int(time.Hour.Milliseconds())
	found("source_timeout", 10_000, "a commit waits for a replica for 10s")
	db.set("source_timeout", hour)
	found("source_wait_no_replica", 0, "a commit waits for nobody once no replica is connected")

	p.replica.Pause()
	db.set("source_wait_no_replica", 1)
	db.set("source_timeout", 1)
	db.exec("CREATE TABLE late (id INT)")
	found("source_timeout", 1, db.variable("source_status")+" is OFF", "a commit waits for a replica for 1ms")
	db.set("source_timeout", hour)
	p.replica.Resume()
	p.keepsUp()
	eventually(t, "a commit waits again", func() bool { return len(check(t, db.db).Findings) == 0 })

	p.dial(p.replica).exec("STOP REPLICA")
	eventually(t, "no replica is connected", func() bool { return check(t, db.db).Standbys == 0 })
	wantProblems(t, check(t, db.db))
	found("source_wait_no_replica", 0, "a commit waits for nobody once no replica is connected")
	db.set("source_enabled", 0)
	wantProblems(t, check(t, db.db))

	p.dial(p.replica).set("replica_enabled", 0)
	p.dial(p.replica).exec("START REPLICA")
	eventually(t, "a replica is connected", func() bool { return check(t, db.db).Standbys == 1 })
	found("source_enabled", 0, "it has 1 replica, and a commit waits for none")
	db.set("source_enabled", 1)
	db.exec("CREATE TABLE alone (id INT)")
	found("source_enabled", 1, "ON, but no replica takes part", "a commit waits for nobody once no replica is connected")
}

// A replica that is sent statements runs them later than the server did. So it finds ended what was renewed.
func TestAReplicaThatIsSentStatementsForgetsALockThatIsHeld(t *testing.T) {
	t.Parallel()
	for format, forgets := range map[string]bool{"STATEMENT": true, "MIXED": false, "ROW": false} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			p := startPair(t, 0)
			p.dial(p.primary).exec("SET GLOBAL binlog_format = " + format) // of connections from now on
			db := p.dial(p.primary).db
			if err := mariadb.install(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			want := []backends.Problem{sqlstore.ProblemReplicas}
			if forgets {
				want = append(want, sqlstore.ProblemReplicas)
			}
			wantProblems(t, check(t, db), want...)

			const ttl = 5 * time.Second
			s := db.store()
			if r, err := s.SetNX(t.Context(), "k", "token", ttl); err != nil || !r.OK {
				t.Fatal(r, err)
			}
			p.keepsUp()
			replica := p.dial(p.replica)
			replica.exec("STOP REPLICA")
			for start := time.Now(); time.Since(start) < ttl+time.Second; time.Sleep(ttl / 5) {
				if ok, err := s.ExpireIf(t.Context(), "k", "token", ttl); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}
			if ok, err := s.ExpireIf(t.Context(), "k", "token", time.Hour); err != nil || !ok {
				t.Fatal(ok, err)
			}
			replica.exec("START REPLICA")
			p.keepsUp()
			if _, _, held := (outside{t, replica.db}).Get("k"); held == forgets {
				t.Errorf("the replica has the lock: %v", held)
			}
		})
	}
}

func wantClass(t *testing.T, what string, err error, permanent, unsent bool) {
	t.Helper()
	var p interface{ Permanent() bool }
	var u interface{ Unsent() bool }
	isPermanent, isUnsent := errors.As(err, &p) && p.Permanent(), errors.As(err, &u) && u.Unsent()
	if err == nil || isPermanent != permanent || isUnsent != unsent {
		t.Errorf("%s: %v; permanent %v, not done %v", what, err, isPermanent, isUnsent)
	}
}

func TestErrorsTellTheirClass(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		dsn := d.dsn(t)
		db := d.dial(t, dsn)
		s := db.store()
		_, err := s.SetNX(t.Context(), "k", "token", time.Second)
		wantClass(t, "without Install", err, true, false)
		if err == nil || !strings.Contains(err.Error(), "call Install once") {
			t.Errorf("%v does not say what to do", err)
		}
		if err := d.install(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		for what, call := range map[string]func() error{
			"a key that is too long": func() error {
				_, err := s.SetNX(t.Context(), strings.Repeat("k", 1025), "token", time.Second)
				return err
			},
			"a token that is too long": func() error {
				_, err := s.SetNX(t.Context(), "k", strings.Repeat("t", 4097), time.Second)
				return err
			},
			"a nil database": func() error {
				_, err := d.open(nil).SetNX(t.Context(), "k", "token", time.Second)
				return err
			},
			"a nil database to install in": func() error { return d.install(t.Context(), nil) },
			"a nil transaction": func() error {
				return s.Guard(t.Context(), sqlstore.InTx(nil), lease("k", "token"))
			},
		} {
			wantClass(t, what, call(), true, false)
		}

		// another transaction keeps the row, or the file
		if _, err := s.SetNX(t.Context(), "k", "token", time.Minute); err != nil {
			t.Fatal(err)
		}
		impatient := d.dial(t, dsn+map[string]string{"sqlite": "&_pragma=busy_timeout(100)", "mysql": "&innodb_lock_wait_timeout=1"}[d.driver])
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Guard(t.Context(), sqlstore.InTx(tx), lease("k", "token")); err != nil {
			t.Fatal(err)
		}
		_, err = impatient.store().ExpireIf(t.Context(), "k", "token", 2*time.Minute)
		wantClass(t, "a transaction in the way", err, false, true)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := s.ExpireIf(ctx, "k", "token", 2*time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the ctx ends while another transaction is in the way: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if ok, err := impatient.store().ExpireIf(t.Context(), "k", "token", 2*time.Minute); err != nil || !ok {
			t.Errorf("ExpireIf = %v, %v", ok, err)
		}
	})
}

// A statement that is not committed at once keeps others out of nothing.
func TestAStoreRefusesConnectionsWithoutAutocommit(t *testing.T) {
	db := mariadb.fresh(t)
	without := mariadb.dial(t, db.dsn+"&autocommit=0")
	_, err := without.store().SetNX(t.Context(), "k", "token", time.Minute)
	wantClass(t, "SetNX", err, true, false)
	if r, err := db.store().SetNX(t.Context(), "k", "other", time.Minute); err != nil || !r.OK {
		t.Errorf("SetNX = %+v, %v; want it granted", r, err)
	}
}

func TestInstallAgainAndAtTheSameTime(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		dsn := d.dsn(t)
		held := d.dial(t, dsn)
		if err := d.install(t.Context(), held.DB); err != nil {
			t.Fatal(err)
		}
		if r, err := held.store().SetNX(t.Context(), "k", "token", time.Minute); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		errs := make(chan error, 8)
		for range cap(errs) {
			db := d.dial(t, dsn)
			go func() { errs <- d.install(t.Context(), db.DB) }()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if ok, err := held.store().ExpireIf(t.Context(), "k", "token", time.Minute); err != nil || !ok {
			t.Errorf("ExpireIf = %v, %v; want the lock to be still there", ok, err)
		}
	})
}

// Programs install at each start: see TestInstallWaitsForNoTransactionIfAllIsThere in backends/pgxstore.
func TestInstallWaitsForNoReaderIfAllIsThere(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		dsn := d.dsn(t)
		db := d.dial(t, dsn)
		if err := d.install(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		var rows int
		if err := tx.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lockstep_lock").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := d.install(ctx, d.dial(t, dsn).DB); err != nil {
			t.Errorf("Install beside a transaction that reads = %v", err)
		}
	})
}

func TestAnInstallThatWaitsForAnotherSaysSo(t *testing.T) {
	db := mariadb.fresh(t)
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := other.ExecContext(t.Context(), "DO GET_LOCK(CONCAT('lockstep ', LEFT(SHA2(DATABASE(), 256), 40)), 0)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := sqlstore.InstallMySQL(ctx, db.DB); err == nil || !strings.Contains(err.Error(), "another program installs") {
		t.Errorf("InstallMySQL = %v; want an error that says why it ended", err)
	}
}

// rowsOf counts the rows of the table.
func rowsOf(t testing.TB, db database) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lockstep_lock").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// changes grows with what MariaDB and MySQL write ahead of their data; for SQLite it is the version of the
// file.
func changes(t *testing.T, on *sql.Conn, d dialect) (n int64) {
	t.Helper()
	statement, into := "SELECT data_version FROM pragma_data_version", []any{&n}
	if d.driver == "mysql" {
		name := "Innodb_lsn_current" // bytes; MySQL has no such variable
		if isMySQL(t, on) {
			name = "Innodb_log_write_requests"
		}
		statement, into = "SHOW GLOBAL STATUS LIKE '"+name+"'", []any{new(string), &n}
	}
	if err := on.QueryRowContext(t.Context(), statement).Scan(into...); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAnAttemptThatFindsTheKeyHeldWritesNothing(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		s := db.store()
		if r, err := s.SetNX(t.Context(), "lock", "token", 10*time.Minute); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		if r, err := s.Enter(t.Context(), "holds", "token", 10*time.Minute, backends.Admission{Limit: 1}); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		watch, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = watch.Close() }()
		// MariaDB writes on its own account now and then
		eventually(t, "attempts between which nothing is written", func() bool {
			before := changes(t, watch, d)
			for range 20 {
				if r, err := s.SetNXNumbered(t.Context(), "lock", "other", time.Minute, backends.Turn{}); err != nil || r.OK {
					t.Fatal(r, err)
				}
				if r, err := s.Enter(t.Context(), "holds", "other", time.Minute, backends.Admission{Limit: 1}); err != nil || r.OK {
					t.Fatal(r, err)
				}
			}
			return changes(t, watch, d) == before
		})
		before := changes(t, watch, d)
		if ok, err := s.ExpireIf(t.Context(), "lock", "token", 20*time.Minute); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if changes(t, watch, d) == before {
			t.Error("a renewal wrote nothing either, so the test shows nothing")
		}
	})
}

func TestSweepRemovesWhatNobodyNeeds(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		s := db.store().(interface {
			store
			Sweep(ctx context.Context) error
		})
		for _, key := range []string{"held", "released", "old", "numbered", "counted", "numbered long ago"} {
			var err error
			switch {
			case strings.HasPrefix(key, "numbered"):
				_, err = s.SetNXNumbered(t.Context(), key, "token", time.Minute, backends.Turn{})
			case key == "counted":
				_, err = s.SetNXFenced(t.Context(), key, "token", time.Minute)
			default:
				_, err = s.SetNX(t.Context(), key, "token", time.Minute)
			}
			if err != nil {
				t.Fatal(err)
			}
			if key != "held" {
				if ok, err := s.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}
		}
		hourAgo := fmt.Sprintf(" = %s - 3601000000 WHERE `key` ", d.now)
		outside{t, db}.exec("UPDATE lockstep_lock SET expires"+hourAgo+"NOT IN (?, ?)", []byte("held"), []byte("released"))
		outside{t, db}.exec("UPDATE lockstep_lock SET kept"+hourAgo+"= ?", []byte("numbered long ago"))
		outside{t, db}.exec("UPDATE lockstep_lock SET look = 0")
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := rowsOf(t, db); n != 4 {
			t.Errorf("%d rows are left; want held, released, numbered and counted", n)
		}
		if r, err := s.SetNXFenced(t.Context(), "counted", "token", time.Minute); err != nil || r.Fence != 2 {
			t.Errorf("SetNXFenced = %+v, %v; want the number 2", r, err)
		}
	})
}

// What docs/stores/mysql.md says of the rights of the user is enough, and less is told.
func TestTheRightsOfAUserOfMariaDB(t *testing.T) {
	db := mariadb.fresh(t)
	for _, statement := range []string{
		"DELETE FROM mysql.db", "FLUSH PRIVILEGES", // everybody may do everything in the database test
		"CREATE USER app", "GRANT SELECT, INSERT, UPDATE, DELETE ON test.lockstep_lock TO app",
		"CREATE USER guest", "CREATE TABLE public (n INT)", "GRANT SELECT ON test.public TO guest",
	} {
		outside{t, db}.exec(statement)
	}
	app := mariadb.dial(t, strings.Replace(db.dsn, "root@", "app@", 1)).store().(interface {
		store
		Sweep(ctx context.Context) error
	})
	if r, err := app.SetNXNumbered(t.Context(), "k", "token", time.Minute, backends.Turn{}); err != nil || !r.OK {
		t.Errorf("SetNXNumbered = %+v, %v", r, err)
	}
	if ok, err := app.ExpireIf(t.Context(), "k", "token", 2*time.Minute); err != nil || !ok {
		t.Errorf("ExpireIf = %v, %v", ok, err)
	}
	if state, err := app.Inspect(trial.Patient(t), "k"); err != nil || state.Holding != 1 {
		t.Errorf("Inspect = %+v, %v", state, err)
	}
	page, err := app.List(trial.Patient(t), "", "", 10)
	if err != nil || len(page.Keys) != 1 || page.Keys[0].Key != "k" {
		t.Fatalf("List = %+v, %v", page, err)
	}
	if r, err := app.SetNXNumbered(t.Context(), "stuck", contract.NewToken(), time.Minute, backends.Turn{}); err != nil || !r.OK {
		t.Errorf("SetNXNumbered = %+v, %v", r, err)
	}
	for _, e := range []backends.Eviction{{By: "ann"}, {Now: true}} {
		state, err := app.Inspect(trial.Patient(t), "stuck")
		if err != nil || len(state.Holds) != 1 {
			t.Fatalf("Inspect = %+v, %v", state, err)
		}
		if ok, err := app.Evict(trial.Patient(t), "stuck", state.Holds[0].Print, e); err != nil || !ok {
			t.Errorf("Evict of %+v = %v, %v", state.Holds[0], ok, err)
		}
	}
	tx, err := mariadb.dial(t, strings.Replace(db.dsn, "root@", "app@", 1)).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Guard(t.Context(), sqlstore.InTx(tx), lease("k", "token")); err != nil {
		t.Errorf("Guard = %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	if ok, err := app.DeleteIf(t.Context(), "k", "token"); err != nil || !ok {
		t.Errorf("DeleteIf = %v, %v", ok, err)
	}
	if err := app.Sweep(t.Context()); err != nil {
		t.Errorf("Sweep = %v", err)
	}
	if r, err := app.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) != nil { // the tests do not wait for the disk
		t.Errorf("Check = %v, %v", r, err)
	}
	_, err = mariadb.dial(t, strings.Replace(db.dsn, "root@", "guest@", 1)).store().SetNX(t.Context(), "k", "token", time.Minute)
	wantClass(t, "SetNX without rights", err, true, false)
	if err == nil || !strings.Contains(err.Error(), "give the user") {
		t.Errorf("%v does not say what to do", err)
	}
}
