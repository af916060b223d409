package dialects_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	_ "modernc.org/sqlite"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // it tells each connection that a test has broken
	os.Exit(redistest.Main(m))
}

const (
	maxTTL   = time.Hour
	patience = 30 * time.Second // for a busy machine
)

// A store is one of the two.
type store interface {
	backends.NumberedStore
	backends.FencedStore
	backends.TransferStore
	backends.SharedTransferStore
	backends.Inspector
	backends.Lister
	backends.Evictor
	backends.Identifier
	Check(ctx context.Context) (sqlstore.Report, error)
	Guard(ctx context.Context, tx sqlstore.Executor, lease contract.Lease) error
}

// A database is one of the two, with the table of the locks.
type database struct {
	*sql.DB
	dsn     string
	dialect dialect
}

type dialect struct {
	name       string
	driver     string
	now        string // the time in µs
	resolution time.Duration
	install    func(ctx context.Context, db *sql.DB) error
	open       func(db *sql.DB, opts ...sqlstore.Option) store
	dsn        func(t testing.TB) string // of a new database
}

var sqlite = dialect{
	name: "SQLite", driver: "sqlite", now: "CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000",
	resolution: 2 * time.Millisecond, install: sqlstore.InstallSQLite,
	open: func(db *sql.DB, opts ...sqlstore.Option) store { return sqlstore.NewSQLite(db, opts...) },
	dsn: func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_pragma=busy_timeout(10000)&_pragma=synchronous(OFF)"
	},
}

var mariadb = dialect{
	name: "MariaDB", driver: "mysql", now: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
	install: sqlstore.InstallMySQL,
	open:    func(db *sql.DB, opts ...sqlstore.Option) store { return sqlstore.NewMySQL(db, opts...) },
	dsn: func(t testing.TB) string {
		return mariadbtest.Start(t, "innodb-flush-log-at-trx-commit=2").DSN() + "?interpolateParams=true"
	},
}

// isMySQL tells MySQL, which `make mysql` puts in the place of MariaDB.
func isMySQL(t *testing.T, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) bool {
	t.Helper()
	var version string
	if err := db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return !strings.Contains(version, "MariaDB")
}

// kind is the name of the server.
func (db database) kind(t *testing.T) string {
	t.Helper()
	if db.dialect.driver == "mysql" && isMySQL(t, db) {
		return "MySQL"
	}
	return db.dialect.name
}

// both runs a test with each of the two.
func both(t *testing.T, test func(t *testing.T, d dialect)) {
	for _, d := range []dialect{sqlite, mariadb} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d)
		})
	}
}

// fresh makes a new database with the table.
func (d dialect) fresh(t testing.TB) database {
	t.Helper()
	db := d.dial(t, d.dsn(t))
	if err := d.install(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	return db
}

func (d dialect) dial(t testing.TB, dsn string) database {
	t.Helper()
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(30)
	db.SetMaxIdleConns(30)
	t.Cleanup(func() { _ = db.Close() })
	return database{db, dsn, d}
}

func (db database) store(opts ...sqlstore.Option) store {
	return db.dialect.open(db.DB, append([]sqlstore.Option{sqlstore.WithMaxTTL(maxTTL)}, opts...)...)
}

// outside reads and changes the table past the store, each time in one statement.
type outside struct {
	t  testing.TB
	db database
}

func (o outside) exec(statement string, args ...any) {
	o.t.Helper()
	if _, err := o.db.ExecContext(context.Background(), statement, args...); err != nil {
		o.t.Errorf("%s: %v", statement, err)
	}
}

func (o outside) Get(key string) (value string, left time.Duration, ok bool) {
	o.t.Helper()
	var us int64
	err := o.db.QueryRowContext(context.Background(), "SELECT CASE kind WHEN 1 THEN value ELSE '' END, CASE expires WHEN 9223372036854775807 THEN 0 ELSE expires - "+
		o.db.dialect.now+" END FROM lockstep_lock WHERE `key` = ? AND kind <> 0 AND expires > "+o.db.dialect.now, []byte(key)).Scan(&value, &us)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		o.t.Errorf("Get: %v", err)
	}
	return value, time.Duration(us) * time.Microsecond, err == nil
}

func (o outside) put(key string, kind int, value string, ttl time.Duration) {
	o.t.Helper()
	expires := fmt.Sprint(int64(math.MaxInt64))
	if ttl > 0 {
		expires = fmt.Sprintf("%s + %d", o.db.dialect.now, ttl.Microseconds())
	}
	insert := "INSERT INTO lockstep_lock (`key`, kind, value, expires, holds, last, kept) VALUES (?, ?, ?, " + expires + ", ?, 0, 0) "
	if o.db.dialect.driver == "sqlite" {
		insert += "ON CONFLICT DO UPDATE SET kind = excluded.kind, value = excluded.value, expires = excluded.expires, holds = excluded.holds"
	} else {
		insert += "ON DUPLICATE KEY UPDATE kind = VALUES(kind), value = VALUES(value), expires = VALUES(expires), holds = VALUES(holds)"
	}
	o.exec(insert, []byte(key), kind, []byte(value), []byte{})
}

func (o outside) Set(key, value string, ttl time.Duration) { o.t.Helper(); o.put(key, 1, value, ttl) }
func (o outside) SetOther(key string)                      { o.t.Helper(); o.put(key, 9, "", 0) }
func (o outside) SetShared(key string)                     { o.t.Helper(); o.put(key, 3, "", 0) }

// Delete frees a key as an operator should: the row has the last number.
func (o outside) Delete(key string) {
	o.t.Helper()
	o.exec("UPDATE lockstep_lock SET kind = 0 WHERE `key` = ?", []byte(key))
}

func (o outside) Holds(key string) bool {
	_, _, ok := o.Get(key)
	return ok
}

func (o outside) Expire(key string) {
	o.exec("UPDATE lockstep_lock SET expires = 0 WHERE `key` = ?", []byte(key))
}
func (o outside) SetForeign(key string)      { o.Set(key, "foreign", 0) }
func (o outside) SetForeignHolds(key string) { o.SetShared(key) }
func (o outside) Evict(key, by string)       { beneath.Evict(o.t, o.db.store(), key, by) }

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	within(t, patience, what, done)
}

func within(t testing.TB, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(time.Millisecond)
	}
}

func wantProblems(t *testing.T, r sqlstore.Report, want ...backends.Problem) {
	t.Helper()
	var got []backends.Problem
	for _, f := range r.Findings {
		got = append(got, f.Problem)
		if f.Detail == "" || f.Consequence == "" || strings.Contains(r.String(), "%!") {
			t.Errorf("a finding does not say what it is about: %+v", f)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("Check found %v; want %v:\n%v", got, want, r)
	}
}
