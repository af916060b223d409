package dialects_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

const password = "sesame"

// TestWordsOfErrorsOfMySQL: each error has the address, what became of the call and, where there is one,
// the next step. It never has the password. If neither the driver nor WithAddress tells the address, the
// text says how to give it.
func TestWordsOfErrorsOfMySQL(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1"
	cert, key := certificate(t)
	server := mariadbtest.Start(t, "ssl-cert="+cert, "ssl-key="+key)
	// everybody may use the database test
	admin := mariadb.dial(t, server.DSN())
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE locks"); err != nil {
		t.Fatal(err)
	}
	if err := sqlstore.InstallMySQL(trial.Patient(t), mariadb.dial(t, strings.Replace(server.DSN(), "/test", "/locks", 1)).DB); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE USER 'stranger'@'%' IDENTIFIED BY '" + password + "'", "GRANT CREATE ON locks.* TO 'stranger'@'%'",
		"CREATE USER 'intruder'@'%' IDENTIFIED BY 'another'", "CREATE USER 'app'@'%' IDENTIFIED BY '" + password + "'", "GRANT ALL ON locks.* TO 'app'@'%'",
	} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	readOnly, full := mariadbtest.Start(t), mariadbtest.Start(t, "max-connections=10")
	makeReadOnly(t, readOnly)
	useUp(t, full)
	withoutTLS := "" // there is no MySQL without it
	if !isMySQL(t, admin) {
		withoutTLS = mariadbtest.Start(t, "skip-ssl").Addr()
	}
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody says a word
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	// everything is there but the table
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE empty"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE USER 'early'@'%' IDENTIFIED BY '" + password + "'", "GRANT ALL ON empty.* TO 'early'@'%'",
		"CREATE USER 'boss'@'%' IDENTIFIED BY '" + password + "'", "GRANT ALL ON *.* TO 'boss'@'%'",
	} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	mustSet(t, mariadb.dial(t, strings.Replace(server.DSN(), "/test", "/locks", 1)).store(), "a", "token", maxTTL)
	fail(t, server)
	mariaDB := server.Addr() // MySQL has other numbers for these
	if isMySQL(t, admin) {
		mariaDB = ""
	}
	for name, c := range map[string]struct {
		user, addr string
		database   string // empty: locks
		params     string // of the DSN
		usedUp     bool   // the pool
		warm       bool   // a call has worked before
		closed     bool
		limit      time.Duration // of the ctx; negative: it has ended before
		unsent     bool
		permanent  bool
		is         error
		next       string
		also       string
		works      string // the calls that work
	}{
		"nobody listens":    {user: "app", addr: nobody, unsent: true, next: "connection refused"},
		"a silent server":   {user: "app", addr: mute.Addr().String(), limit: time.Second, unsent: true, is: context.DeadlineExceeded},
		"a wrong password":  {user: "intruder", addr: server.Addr(), permanent: true, next: "Access denied for user 'intruder'"},
		"a missing right":   {user: "stranger", addr: server.Addr(), permanent: true, next: "give the user SELECT, INSERT, UPDATE and DELETE"},
		"the ctx has ended": {user: "app", addr: server.Addr(), warm: true, limit: -1, unsent: true, is: context.Canceled},
		"closed":            {user: "app", addr: server.Addr(), warm: true, closed: true, unsent: true, next: "closed"},

		"a server that is read-only":  {user: "app", addr: readOnly.Addr(), unsent: true, next: "the server is read-only, as a replica is: connect to the server that takes the writes, or set read_only to OFF", works: "Inspect"},
		"too many connections":        {user: "app", addr: full.Addr(), unsent: true, next: "raise max_connections"},
		"too many connections of one": {user: "crowd", addr: server.Addr(), unsent: true, next: "has exceeded the 'max_user_connections'", also: "raise max_connections or the limit of the user"},

		"a disk that is full":                 {user: "cramped", addr: server.Addr(), unsent: true, next: "Disk full", also: "make room on the disk of the server", works: "Inspect"},
		"a table that is full":                {user: "brimming", addr: server.Addr(), unsent: true, next: "The table is full", also: "make room on the disk of the server", works: "Inspect"},
		"a statement that takes too long":     {user: "slow", addr: mariaDB, unsent: true, next: "max_statement_time exceeded", also: "raise max_statement_time", works: "Inspect"},
		"a connection that is lost in a call": {user: "shot", addr: mariaDB, next: "onnection was", works: "Inspect"},

		"a name that nobody knows":                  {user: "app", addr: "no..such:3306", unsent: true, next: "no such host"},
		"a database that is missing":                {user: "boss", database: "none", addr: server.Addr(), permanent: true, next: "Unknown database", also: "create the database, or name another one"},
		"a database that is missing, or of another": {user: "app", database: "none", addr: server.Addr(), permanent: true, next: "to database 'none'", also: "name a database that is there"},
		"a table that is missing":                   {user: "early", database: "empty", addr: server.Addr(), permanent: true, next: "doesn't exist", also: "run `lockstep install`"},
		"a server without TLS":                      {user: "app", params: "?tls=skip-verify", addr: withoutTLS, unsent: true, next: "TLS requested but server does not support TLS"},
		"a certificate that nobody vouches for":     {user: "app", params: "?tls=true", addr: server.Addr(), unsent: true, next: "x509: "},
		"a pool that is used up":                    {user: "app", addr: server.Addr(), warm: true, usedUp: true, limit: time.Second, unsent: true, is: context.DeadlineExceeded, next: "give the locks a pool of their own"},
	} {
		if c.addr == "" {
			continue
		}
		for _, by := range []string{"the driver", "WithAddress", "nobody"} {
			t.Run(name+", address told by "+by, func(t *testing.T) {
				t.Parallel()
				config, err := mysql.ParseDSN(c.user + ":" + password + "@tcp(" + c.addr + ")/" + cmp.Or(c.database, "locks") + c.params)
				if err != nil {
					t.Fatal(err)
				}
				connector, err := mysql.NewConnector(config)
				if err != nil {
					t.Fatal(err)
				}
				if by != "the driver" {
					connector = wrapped{connector}
				}
				db := sql.OpenDB(connector)
				t.Cleanup(func() { _ = db.Close() })
				if c.user == "shot" {
					db.SetMaxIdleConns(-1) // the next call may have a connection whose end it does not see yet
				}
				var opts []sqlstore.Option
				if by == "WithAddress" {
					opts = append(opts, sqlstore.WithAddress(c.addr))
				}
				store := sqlstore.NewMySQL(db, opts...)
				if c.warm {
					if _, err := store.SetNX(t.Context(), name+by, "token", time.Second); err != nil {
						t.Fatal(err)
					}
				}
				if c.closed {
					_ = db.Close()
				}
				if c.usedUp {
					db.SetMaxOpenConns(1)
					conn, err := db.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = conn.Close() })
				}
				for call, fn := range map[string]func(context.Context) error{
					"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "b", "token", time.Second); return err },
					"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "token", time.Second); return err },
					"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "token"); return err },
					"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
				} {
					ctx, cancel := context.WithCancel(trial.Patient(t))
					if c.limit > 0 {
						ctx, cancel = context.WithTimeout(t.Context(), c.limit)
					}
					defer cancel()
					if c.limit < 0 {
						cancel()
					}
					err := fn(ctx)
					if slices.Contains(strings.Fields(c.works), call) {
						if err != nil {
							t.Errorf("%s = %v", call, err)
						}
						continue
					}
					switch text := fmt.Sprint(err); {
					case err == nil:
						t.Errorf("%s: it has worked", call)
					case !strings.Contains(text, c.addr) && (by != "nobody" || !strings.Contains(text, "(name its address with sqlstore.WithAddress)")):
						t.Errorf("%s: %v; want the address %s, or what names it", call, err, c.addr)
					case strings.Contains(text, c.addr) && strings.Contains(text, "sqlstore.WithAddress"):
						t.Errorf("%s: %v has an address", call, err)
					case !strings.Contains(text, c.next), !strings.Contains(text, c.also), c.is != nil && !errors.Is(err, c.is):
						t.Errorf("%s: %v; want %q, %q and an error that is %v", call, err, c.next, c.also, c.is)
					case backends.Permanent(err) != c.permanent, backends.Unsent(err) != c.unsent:
						t.Errorf("%s: %v: permanent %v and not sent %v; want %v and %v", call, err, backends.Permanent(err), backends.Unsent(err), c.permanent, c.unsent)
					case strings.Contains(text, password):
						t.Errorf("%s: %v has the password", call, err)
					}
				}
			})
		}
	}
}

// wrapped hides the connector of the driver, as a package for traces does.
type wrapped struct{ driver.Connector }

// fail gives a server users whose calls of the database locks fail.
func fail(t *testing.T, server *mariadbtest.Server) {
	t.Helper()
	x := outside{t, mariadb.dial(t, strings.Replace(server.DSN(), "/test", "/locks", 1))}
	for _, user := range []string{"cramped", "brimming", "slow", "shot", "crowd"} {
		x.exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY '" + password + "'")
		x.exec("GRANT ALL ON locks.* TO '" + user + "'@'%'")
	}
	x.exec("ALTER USER 'crowd'@'%' WITH MAX_USER_CONNECTIONS 1")
	conn, err := mariadb.dial(t, strings.Replace(server.DSN(), "root@", "crowd:"+password+"@", 1)).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if !isMySQL(t, x.db) {
		x.exec("ALTER USER 'slow'@'%' WITH MAX_STATEMENT_TIME 0.1")
	}
	for _, change := range []string{"INSERT", "UPDATE"} {
		x.exec("CREATE TRIGGER fault_" + change + " BEFORE " + change + ` ON lockstep_lock FOR EACH ROW BEGIN
			IF USER() LIKE 'cramped@%' THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full'; END IF;
			IF USER() LIKE 'brimming@%' THEN SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'; END IF;
			IF USER() LIKE 'slow@%' THEN DO SLEEP(60); END IF;
			IF USER() LIKE 'shot@%' THEN KILL CONNECTION_ID(); END IF;
		END`)
	}
}

// A call that waits for a row when its server ends may have been done. One that comes later is not sent.
func TestWordsOfErrorsOfAMySQLServerThatEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*mariadbtest.Server){
		"and says so":  func(s *mariadbtest.Server) { s.Stop() },
		"by a kill -9": func(s *mariadbtest.Server) { s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := mariadbtest.Start(t)
			admin := mariadb.dial(t, server.DSN())
			if err := sqlstore.InstallMySQL(trial.Patient(t), admin.DB); err != nil {
				t.Fatal(err)
			}
			mustSet(t, admin.store(), "a", "token", maxTTL)
			store := mariadb.dial(t, server.DSN()).store() // has no connection of its own yet, on which it would not wait
			tx, err := admin.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "UPDATE lockstep_lock SET kept = kept + 1"); err != nil {
				t.Fatal(err)
			}
			calls := map[string]func() error{
				"ExpireIf": func() error { _, err := store.ExpireIf(t.Context(), "a", "token", time.Second); return err },
				"DeleteIf": func() error { _, err := store.DeleteIf(t.Context(), "a", "token"); return err },
			}
			want := func(call string, err error, unsent bool, text string) {
				if backends.Permanent(err) || backends.Unsent(err) != unsent || !strings.Contains(fmt.Sprint(err), text) || !strings.Contains(fmt.Sprint(err), server.Addr()) {
					t.Errorf("%s: %v: permanent %v and not sent %v; want the address %s, %q and not sent %v",
						call, err, backends.Permanent(err), backends.Unsent(err), server.Addr(), text, unsent)
				}
			}
			lost := "the connection was lost in the call: "
			if isMySQL(t, admin) {
				lost = "" // it may tell that it shuts down
			}
			var all sync.WaitGroup
			for call, fn := range calls {
				all.Go(func() { want(call+" that waits", fn(), false, lost) })
			}
			eventually(t, "a call waits for the row", func() bool {
				time.Sleep(200 * time.Millisecond) // the server shows a copy, and a new one if nobody has looked for 100 ms
				var n int
				const waits = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
				if err := admin.QueryRowContext(t.Context(), waits).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n == len(calls)
			})
			end(server)
			all.Wait()
			for call, fn := range calls {
				want(call+" afterwards", fn(), true, "connection refused")
			}
		})
	}
}

// makeReadOnly gives a server the table and a user, and lets it take no more writes.
func makeReadOnly(t *testing.T, server *mariadbtest.Server) {
	t.Helper()
	admin := mariadb.dial(t, server.DSN())
	exec := func(statements ...string) {
		for _, statement := range statements {
			if _, err := admin.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	exec("CREATE DATABASE locks", "CREATE USER 'app'@'%' IDENTIFIED BY '"+password+"'", "GRANT ALL ON locks.* TO 'app'@'%'")
	if err := sqlstore.InstallMySQL(trial.Patient(t), mariadb.dial(t, strings.Replace(server.DSN(), "/test", "/locks", 1)).DB); err != nil {
		t.Fatal(err)
	}
	exec("SET GLOBAL read_only = ON")
	if isMySQL(t, admin) {
		exec("SET GLOBAL super_read_only = ON")
	}
}

// useUp takes all connections that a server may have.
func useUp(t *testing.T, server *mariadbtest.Server) {
	t.Helper()
	db := mariadb.dial(t, server.DSN())
	for {
		conn, err := db.Conn(t.Context())
		if told, ok := errors.AsType[*mysql.MySQLError](err); ok && told.Number == 1040 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// The end of a ctx makes the Client leave an attempt, whose error it does not have.
func TestTheAddressOfAMySQLServerThatFallsSilent(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	addr := mute.Addr().String()
	db := mariadb.dial(t, "root@tcp("+addr+")/test")
	_, err = locker.New(single.New(db.store(sqlstore.WithAddress(addr)))).Lock(t.Context(), "a", locker.WithWait(time.Second))
	if err == nil || !strings.Contains(err.Error(), addr) || backends.Permanent(err) {
		t.Errorf("%v; want the address %s", err, addr)
	}
}

// TestWordsOfErrorsOfSQLite: each error has the path of the file, the reason that SQLite gave, what became of
// the call and the next step. If neither the driver nor WithAddress tells the path, and the file can't be
// opened, the text says how to give it.
func TestWordsOfErrorsOfSQLite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare   func(t *testing.T, path string)
		options   string
		hidden    bool // the path, as no connection is had
		inMemory  bool
		usedUp    bool // the pool
		closed    bool
		limit     time.Duration // of the ctx
		permanent bool
		unknown   bool // otherwise nothing was done
		is        error
		says      []string // the reason, and the next step
		works     string   // the calls that work
	}{
		"a file that is only read": {
			prepare: installFile, options: "?mode=ro", permanent: true,
			says: []string{"attempt to write a readonly database", "remove mode=ro and immutable=1 from the DSN"}, works: "Inspect Check",
		},
		"a file that is no database": {
			prepare: func(t *testing.T, path string) { writeFile(t, path, strings.Repeat("no database", 100)) }, permanent: true, hidden: true,
			says: []string{"file is not a database", "give the path of another file"},
		},
		"a file that stays locked": {
			prepare: lockFile, options: "?_pragma=busy_timeout(50)",
			says: []string{"database is locked", "another program wrote for longer than the busy_timeout"}, works: "Inspect Check",
		},
		"a file that stays locked for longer than the ctx": {
			prepare: lockFile, options: "?_pragma=busy_timeout(600000)", limit: 2 * time.Second, unknown: true, is: context.DeadlineExceeded, works: "Inspect Check",
		},
		"a disk that is full": { // the file may not grow
			prepare: installFile, options: "?_pragma=max_page_count(1)",
			says: []string{"database or disk is full", "the disk is full, or the file has reached max_page_count"}, works: "ExpireIf DeleteIf Inspect Check",
		},
		"no table": {
			prepare: func(t *testing.T, path string) { writeFile(t, path, "") }, permanent: true,
			says: []string{"no such table: main.lockstep_lock", "run `lockstep install` or call Install once"}, works: "Check",
		},
		"no file": {
			prepare: func(*testing.T, string) {}, options: "?mode=rw", hidden: true,
			says: []string{"unable to open database file", "there is no such file, or this user may not open it"},
		},
		"a database in memory": {
			prepare: func(*testing.T, string) {}, inMemory: true, permanent: true,
			says: []string{"no such table: main.lockstep_lock", "run `lockstep install` or call Install once"}, works: "Check",
		},
		"a pool that is used up": {
			prepare: installFile, usedUp: true, hidden: true, limit: time.Second, is: context.DeadlineExceeded,
			says: []string{"the only connection of the pool is in use", "give the locks a pool of their own, or make this one larger (SetMaxOpenConns)"},
		},
		"a pool that is closed": {
			prepare: installFile, closed: true, hidden: true, says: []string{"sql: database is closed"},
		},
	} {
		for _, by := range []string{"the driver", "WithAddress", "nobody"} {
			t.Run(name+", path told by "+by, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), "the locks.db")
				c.prepare(t, path)
				dsn := "file:" + path + c.options
				if c.inMemory {
					path, dsn = ":memory:", "file:"+path+"?mode=memory"
				}
				db := sqlite.dial(t, dsn)
				if by != "the driver" {
					db.DB = sql.OpenDB(hidden{db.Driver(), dsn})
					t.Cleanup(func() { _ = db.Close() })
				}
				var opts []sqlstore.Option
				if by == "WithAddress" {
					opts = append(opts, sqlstore.WithAddress(path))
				}
				store := db.store(opts...)
				address := "sqlite at " + path
				if by == "nobody" && c.hidden {
					address = "sqlite (name its address with sqlstore.WithAddress)"
				}
				if c.usedUp {
					db.SetMaxOpenConns(1)
					conn, err := db.Conn(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = conn.Close() })
				}
				if c.closed {
					_ = db.Close()
				}
				needsRoom := strings.Repeat("a", 3000)
				for call, fn := range map[string]func(context.Context) error{
					"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "b", needsRoom, time.Hour); return err },
					"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "mine", time.Hour); return err },
					"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "mine"); return err },
					"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
					"Check":    func(ctx context.Context) error { _, err := store.Check(ctx); return err },
				} {
					works := slices.Contains(strings.Fields(c.works), call)
					ctx, cancel := context.WithCancel(trial.Patient(t))
					if c.limit > 0 && !works {
						ctx, cancel = context.WithTimeout(t.Context(), c.limit)
					}
					defer cancel()
					err := fn(ctx)
					if works != (err == nil) {
						t.Errorf("%s = %v; works: %v", call, err, works)
					}
					if err == nil {
						continue
					}
					if backends.Permanent(err) != c.permanent || backends.Unsent(err) == (c.permanent || c.unknown) || c.is != nil && !errors.Is(err, c.is) {
						t.Errorf("%s: %v: permanent %v and not done %v; want permanent %v, unknown %v, and an error that is %v",
							call, err, backends.Permanent(err), backends.Unsent(err), c.permanent, c.unknown, c.is)
					}
					for _, word := range append(c.says, address) {
						if !strings.Contains(err.Error(), word) {
							t.Errorf("%s: %v; want %q", call, err, word)
						}
					}
				}
			})
		}
	}
}

// No option can give an address to Install.
func TestTheAddressInTheErrorsOfInstall(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "none", "locks.db")
	if err := sqlstore.InstallSQLite(trial.Patient(t), sqlite.dial(t, "file:"+file).DB); err == nil || !strings.Contains(err.Error(), "sqlite at "+file+": ") {
		t.Errorf("InstallSQLite = %v; want the path %s", err, file)
	}
	hidden := sql.OpenDB(hidden{sqlite.dial(t, "").Driver(), "file:" + file})
	t.Cleanup(func() { _ = hidden.Close() })
	if err := sqlstore.InstallSQLite(trial.Patient(t), hidden); err == nil || strings.Contains(err.Error(), "WithAddress") {
		t.Errorf("InstallSQLite = %v; want no option", err)
	}
	server := mariadbtest.Start(t)
	stranger := mariadb.dial(t, strings.Replace(server.DSN(), "root@", "stranger:"+password+"@", 1))
	if err := sqlstore.InstallMySQL(trial.Patient(t), stranger.DB); err == nil || !strings.Contains(err.Error(), "mysql at "+server.Addr()+": ") {
		t.Errorf("InstallMySQL = %v; want the address %s", err, server.Addr())
	}
}

// hidden is a connector that does not tell its DSN where the store looks for it.
type hidden struct {
	driver driver.Driver
	name   string
}

func (h hidden) Connect(context.Context) (driver.Conn, error) { return h.driver.Open(h.name) }
func (h hidden) Driver() driver.Driver                        { return h.driver }

func installFile(t *testing.T, path string) {
	t.Helper()
	db := sqlite.dial(t, "file:"+path)
	if err := sqlite.install(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	mustSet(t, db.store(), "a", "mine", time.Hour)
}

// lockFile installs, and leaves a transaction that writes.
func lockFile(t *testing.T, path string) {
	t.Helper()
	installFile(t, path)
	conn, err := sqlite.dial(t, "file:"+path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
