package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/bounded"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// SQLite is a store in a database file. It excludes the processes of one computer, without a server. It is
// no store for several computers: their file systems share no locks that SQLite can rely on.
//
//	SetNX      SELECT, which finds the key held or free; then INSERT or UPDATE of the row as it was read
//	ExpireIf   UPDATE
//	DeleteIf   UPDATE
//
// Each statement is a transaction of its own: begin yours by BeginTx, and not by Exec, which a call on the
// same connection would become a part of. An attempt that finds the key held writes nothing. SQLite has
// one writer at a time. A call that waits for longer than the busy_timeout of its connection fails, and
// nothing was done. A process that is stopped by SIGSTOP while it writes keeps all others from writing until
// it goes on or is killed.
//
// A file with hard links is refused, and one that is mounted by itself, as into a container: the locks lie
// beside the name, in -wal and -shm. Mounts are seen on Linux, and links not on Windows.
//
// A program that has the file open goes on with it when it is deleted, moved or replaced, and
// others get another one. Locks are lost then, at the next renewal, and a call that takes one
// fails: the program must be restarted. A holder whose lease has not ended may still work beside
// the next one: do not touch the file, nor those beside it (-wal, -shm), while programs run.
//
// Times are those of the clock of the computer, cut to milliseconds: a value lives up to 2 ms longer than
// asked. A number is the time in microseconds, or the last number plus one if that is greater. It is kept
// for [backends.FenceRetention].
//
// Waiters poll, and there is no queue: nobody would tell a waiter that its turn has come, so most
// reservations would end unused.
type SQLite struct{ rows }

var (
	_ rowStore = (*SQLite)(nil)
	_ rowStore = (*MySQL)(nil)
)

// rowStore is what a store over rows can do.
type rowStore interface {
	backends.NumberedStore
	backends.FencedStore
	backends.TransferStore
	backends.SharedTransferStore
	backends.Inspector
	backends.Lister
	backends.Evictor
	backends.Identifier
	backends.OneServer
}

// NewSQLite returns a store in the main database of db. The driver may be any whose errors have a method or
// a field Code, such as modernc.org/sqlite, github.com/mattn/go-sqlite3 or github.com/ncruces/go-sqlite3. Its
// connections should have a busy_timeout of some seconds, and synchronous NORMAL or FULL: see [SQLite.Check].
func NewSQLite(db *sql.DB, opts ...Option) *SQLite {
	c := configure(sqliteName, opts)
	c.at.look(db)
	s := &SQLite{over(databasePool{db: db, at: c.at}, c, dialectOf("sqlite", time.Millisecond, sqliteError))}
	s.own.prepare = func(context.Context, *databaseConn) (server int64, err error) { return 1, nil } // inPlace looks after the file
	// SQLite waits for the lock of the file by sleeping. With the wait here, 64 goroutines take 1.6 to 1.9 times
	// as many locks, and 8 as many as before: BenchmarkSQLiteGoroutines in bench/stores.
	s.writing, s.granting, s.ending = make(slot, 1), make(slot, 1), make(slot, 1)
	s.file = &file{at: c.at}
	return s
}

// Endpoint returns "file " and the path, if it is known: see [WithAddress].
func (s *SQLite) Endpoint() string {
	path := s.rows.Endpoint()
	if path == "" || path == inMemory {
		return ""
	}
	return "file " + path
}

const sqliteName = "sqlite" // in texts

// SQLiteSchema returns the statement that creates the table lockstep_lock. It may run again, also while
// locks are held. The database must be in WAL mode, which `PRAGMA journal_mode = WAL` sets for good.
func SQLiteSchema() string { return script("sqlite", "schema") }

// InstallSQLite sets the WAL mode and runs [SQLiteSchema], or changes the table of an older version. Programs
// may call it at every start, several at once, also while locks are held. It refuses to replace what a newer
// program has installed.
func InstallSQLite(ctx context.Context, db *sql.DB) error {
	return installing(ctx, db, sqliteName, sqliteError, func(ctx context.Context) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := (&file{at: new(place)}).stays(ctx, &databaseConn{conn}); err != nil {
			return err
		}
		for _, statement := range []string{"PRAGMA journal_mode = WAL", "BEGIN IMMEDIATE"} {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		err = migrateSQLite(ctx, conn)
		if err == nil {
			_, err = conn.ExecContext(ctx, "COMMIT")
		}
		if err != nil {
			ctx, cancel := undo(ctx)
			defer cancel()
			_, _ = conn.ExecContext(ctx, "ROLLBACK")
		}
		return err
	})
}

// migrateSQLite makes or changes the tables.
func migrateSQLite(ctx context.Context, conn *sql.Conn) error {
	there, err := partsOfSQLite(ctx, conn)
	if err != nil {
		return err
	}
	version, err := versionOfSQLite(ctx, conn, there)
	if err != nil {
		return err
	}
	if version > tablesVersion {
		return newerVersion(version)
	}
	has := func(name string) bool { return slices.ContainsFunc(there, func(p part) bool { return p.Name == name }) }
	if has("lockstep_lock") && !has("lockstep_lock.look") {
		if _, err := conn.ExecContext(ctx, "ALTER TABLE main.lockstep_lock ADD COLUMN look INTEGER NOT NULL DEFAULT 0"); err != nil {
			return err
		}
	}
	if _, err := conn.ExecContext(ctx, SQLiteSchema()); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "UPDATE main.lockstep_version SET number = ? WHERE number <> ?", tablesVersion, tablesVersion)
	return err
}

var partsOfSQLiteWanted = []part{
	{"table", "lockstep_lock", ""}, {"table", "lockstep_version", ""},
	{"column", "lockstep_lock.key", "BLOB"}, {"column", "lockstep_lock.kind", "INTEGER"}, {"column", "lockstep_lock.value", "BLOB"},
	{"column", "lockstep_lock.expires", "INTEGER"}, {"column", "lockstep_lock.holds", "BLOB"}, {"column", "lockstep_lock.last", "INTEGER"},
	{"column", "lockstep_lock.kept", "INTEGER"}, {"column", "lockstep_lock.look", "INTEGER"}, {"index", "lockstep_lock (look)", ""},
}

func partsOfSQLite(ctx context.Context, db queryer) ([]part, error) {
	return partsThere(ctx, db, `SELECT 'table', name, '' FROM main.sqlite_schema WHERE type = 'table' AND name IN ('lockstep_lock', 'lockstep_version')
		UNION ALL SELECT 'column', 'lockstep_lock.' || name, type FROM pragma_table_info('lockstep_lock', 'main')
		UNION ALL SELECT 'index', 'lockstep_lock (' || (SELECT group_concat(name, ', ') FROM pragma_index_info(l.name, 'main')) || ')', ''
			FROM pragma_index_list('lockstep_lock', 'main') AS l WHERE origin = 'c'`)
}

// versionOfSQLite is 1 if no version is stored: the table is missing, or older than the versions.
func versionOfSQLite(ctx context.Context, db queryer, there []part) (version int, err error) {
	if !slices.ContainsFunc(there, func(p part) bool { return p.Name == "lockstep_version" }) {
		return 1, nil
	}
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(number), 1) FROM main.lockstep_version").Scan(&version)
	return version, err
}

// Guard makes a transaction of the application depend on a lease, if both are in the same database file. It
// is [PostgreSQL.Guard]: call it as the last statement before Commit. It makes tx a transaction that writes,
// if it is not yet one. If it can't, because others have written since tx began to read, nothing was done:
// roll tx back and try again. A transaction that begins with BEGIN IMMEDIATE does not meet that.
func (s *SQLite) Guard(ctx context.Context, tx Executor, lease contract.Lease) error {
	return s.guard(ctx, tx, lease)
}

// place is the path of the database file; empty: it is in memory.
func (s *SQLite) place(ctx context.Context) (string, error) {
	if _, err := s.prepare(ctx, ""); err != nil {
		return "", err
	}
	defer s.own.settle()
	if err := s.on(ctx, grants, func(context.Context, *databaseConn, bool) error { return nil }); err != nil {
		return "", s.explain(ctx, err)
	}
	path := s.file.path
	if target, err := filepath.EvalSymlinks(path); err == nil && path != "" {
		path = target
	}
	return path, nil
}

// Identify implements [backends.Identifier]. Each file is a server of its own.
func (s *SQLite) Identify(ctx context.Context) (_ backends.Identity, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	path, err := s.place(ctx)
	if err != nil {
		return backends.Identity{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return backends.Identity{}, fmt.Errorf("the name of the computer is not known: %w", err)
	}
	return backends.Identity{Server: "sqlite " + host + ":" + path, Role: "master"}, nil
}

// Check asks the database how it is set up, and says what each finding means. The error is not nil only if
// it did not answer. It can't see options of the driver that switch the locks of the file off, such as
// nolock or a VFS without them.
func (s *SQLite) Check(ctx context.Context) (_ Report, err error) {
	ctx, end := bounded.Context(ctx)
	defer end(&err)
	var r Report
	path, err := s.place(ctx)
	moved, isMoved := errors.AsType[fileMoved](err)
	names, hasNames := errors.AsType[severalNames](err)
	if err != nil && !isMoved && !hasNames {
		return r, fmt.Errorf("lockstep: check: %w", err)
	}
	var version, journal string
	var synchronous, busy int64
	before := time.Now()
	err = s.db.QueryRowContext(ctx, `SELECT sqlite_version(), (SELECT journal_mode FROM pragma_journal_mode),
		(SELECT synchronous FROM pragma_synchronous), (SELECT timeout FROM pragma_busy_timeout)`).
		Scan(&version, &journal, &synchronous, &busy)
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", s.explain(ctx, err))
	}
	r.RoundTrip = time.Since(before)
	r.Version = "SQLite " + version
	there, err := partsOfSQLite(ctx, s.db)
	installed := 1
	if err == nil {
		installed, err = versionOfSQLite(ctx, s.db, there)
	}
	if err != nil {
		return r, fmt.Errorf("lockstep: check: %w", s.explain(ctx, err))
	}
	r.install(tablesVersion, installed, partsOfSQLiteWanted, there)
	if isMoved {
		r.find(ProblemFile, true, "its locks exclude nobody who opens the file now: restart the program", "the database file %s was %s while this program had it open", moved.path, moved.how)
	} else if hasNames {
		r.find(ProblemFile, true, "its locks exclude only programs that open it by one name, so no call is sent: "+names.then, "the database file %s %s", names.path, names.why)
	} else if path == "" {
		r.find(ProblemFile, true, "each connection has locks of its own", "the database is in memory")
	} else if kind := networkFileSystem(path); kind != "" {
		r.find(ProblemFile, true, "its locks do not exclude reliably: put the file on a disk of this computer", "the file is on %s", kind)
	}
	switch mode := strings.ToLower(journal); {
	case mode == "wal" || path == "" && !isMoved && !hasNames:
	case mode == "off" || mode == "memory":
		r.find(ProblemPersistence, true, "a program that is killed while it writes damages the file: set journal_mode to WAL", "journal_mode is %s", mode)
	default:
		r.find(ProblemPersistence, false, "readers and writers wait for each other: set journal_mode to WAL", "journal_mode is %s", mode)
	}
	if synchronous == 0 {
		r.find(ProblemPersistence, false, "a power cut can damage the file: set it to NORMAL", "synchronous is OFF")
	}
	if busy < leastBusyTimeout.Milliseconds() {
		r.find(ProblemBusy, false, "calls fail when several programs write: set it to 5000 for each connection, in the DSN", "busy_timeout is %d ms", busy)
	}
	r.checkPool(databasePool{db: s.db}, false)
	return r, nil
}

const leastBusyTimeout = time.Second
