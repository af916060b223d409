package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// outcomes of a call
const (
	notSent   = "not sent"
	unknown   = "unknown"
	permanent = "permanent"
)

func outcomeOf(err error) string {
	switch {
	case backends.Permanent(err):
		return permanent
	case backends.Unsent(err):
		return notSent
	}
	return unknown
}

// TestWordsOfErrors: each error has the address, what became of the call and, where there is one, the next
// step. It never has the password.
func TestWordsOfErrors(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	const password = "sesame"
	admin := outside{t, dial(t, server.DSN())}
	admin.exec("CREATE ROLE stranger LOGIN PASSWORD '" + password + "'")
	admin.exec("CREATE ROLE intruder LOGIN PASSWORD 'another'")
	admin.exec("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
	admin.exec("CREATE ROLE reader LOGIN SUPERUSER")
	admin.exec("ALTER ROLE reader SET default_transaction_read_only = on")
	standby := net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Standby(t).Port()))
	full := usedUpServer(t)
	askForPassword(t, admin, server, "intruder")
	up := net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port()))
	silent, closing, encrypted := mute(t), closingServer(t), withTLS(t, up)
	withoutTables := pgtest.Start(t, "fsync=off")
	uninstalled := net.JoinHostPort("127.0.0.1", strconv.Itoa(withoutTables.Port()))
	// What a disk, or an operator, does to a statement of these roles.
	admin.exec("CREATE ROLE cramped LOGIN SUPERUSER")
	admin.exec("CREATE ROLE shot LOGIN SUPERUSER")
	admin.exec(`CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF session_user = 'cramped' THEN RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; END IF;
		IF session_user = 'shot' THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
		RETURN NULL;
	END $$`)
	admin.exec("CREATE TRIGGER fault BEFORE INSERT OR UPDATE OR DELETE ON lockstep.lock EXECUTE FUNCTION fault()")
	dsn := func(addr, role string) string {
		host, port, _ := net.SplitHostPort(addr)
		return fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=postgres sslmode=disable", host, port, role, password)
	}
	const nobody, onlyRead = "127.0.0.1:1", "Inspect Identify Check"
	for name, c := range map[string]struct {
		dsn, addr string
		warm      bool // a call has worked before
		closed    bool
		limit     time.Duration // of the ctx; negative: it has ended before
		outcome   string
		is        error
		next      string // or the reason of the server
		also      string // the other one of these
		usedUp    bool   // the pool
		works     string // the calls that work, or call/by
	}{
		"nobody listens":    {dsn: dsn(nobody, "postgres"), addr: nobody, outcome: notSent, next: "connection refused"},
		"a silent server":   {dsn: dsn(silent, "postgres"), addr: silent, limit: time.Second, outcome: notSent, is: context.DeadlineExceeded},
		"a wrong database":  {dsn: strings.Replace(dsn(up, "postgres"), "dbname=postgres", "dbname=none", 1), addr: up, outcome: permanent, next: "does not exist"},
		"a wrong password":  {dsn: dsn(up, "intruder"), addr: up, outcome: permanent, next: "password authentication failed", also: "check the user name and the password, and pg_hba.conf"},
		"a missing right":   {dsn: dsn(up, "stranger"), addr: up, outcome: permanent, next: "lockstep install", works: "Identify"},
		"the ctx has ended": {dsn: dsn(up, "postgres"), addr: up, warm: true, limit: -1, outcome: notSent, is: context.Canceled},
		"closed":            {dsn: dsn(up, "postgres"), addr: up, warm: true, closed: true, outcome: notSent, next: "closed"},

		"a name that nobody knows":              {dsn: dsn("no..such:5432", "postgres"), addr: "no..such", outcome: notSent, next: "no such host"},
		"a role that nobody knows":              {dsn: dsn(up, "unknown"), addr: up, outcome: permanent, next: `role "unknown" does not exist`, also: "check the user name"},
		"a server without TLS":                  {dsn: dsn(up, "postgres") + " sslmode=require", addr: up, outcome: notSent, next: "server refused TLS connection"},
		"a certificate that nobody vouches for": {dsn: dsn(encrypted, "postgres") + " sslmode=verify-full", addr: encrypted, outcome: notSent, next: "certificate signed by unknown authority"},
		"tables that are missing":               {dsn: dsn(uninstalled, "postgres"), addr: uninstalled, outcome: permanent, next: "does not exist", also: "run `lockstep install`", works: "Identify Check"},
		"a disk that is full":                   {dsn: dsn(up, "cramped"), addr: up, outcome: notSent, next: "No space left on device", also: "make room on the disk of the server", works: onlyRead},
		"a connection that is lost in a call":   {dsn: dsn(up, "shot"), addr: up, outcome: unknown, next: "terminating connection due to administrator command", also: "the outcome is unknown", works: onlyRead},
		"a server that shuts down":              {dsn: dsn(closing, "postgres"), addr: closing, outcome: notSent, next: "the database system is shutting down", also: "wait until the server has started"},
		"a pool that is used up":                {dsn: dsn(up, "postgres"), addr: up, warm: true, usedUp: true, limit: time.Second, outcome: notSent, is: context.DeadlineExceeded, next: "give the locks a pool of their own", works: "ExpireIf/pgx DeleteIf/pgx"},

		"too many connections":        {dsn: dsn(full, "postgres"), addr: full, outcome: notSent, next: "raise max_connections"},
		"too many connections of one": {dsn: dsn(up, "crowd"), addr: up, outcome: notSent, next: "CONNECTION LIMIT"},
		"a standby":                   {dsn: dsn(standby, "postgres"), addr: standby, outcome: notSent, next: "connect to the primary (target_session_attrs=read-write)", works: onlyRead},
		"transactions that only read": {dsn: dsn(up, "reader"), addr: up, outcome: notSent, next: "set it to off for the role of the locks", works: onlyRead},
	} {
		for _, by := range []string{"pgx", "database/sql"} {
			t.Run(name+" by "+by, func(t *testing.T) {
				t.Parallel()
				var store *sqlstore.PostgreSQL
				var use, end func()
				if by == "pgx" {
					s, pool, err := pgxstore.Open(t.Context(), c.dsn)
					if err != nil {
						t.Fatal(err)
					}
					store, end = s, pool.Close
					use = func() { occupy(t, pool) }
				} else {
					db, err := sql.Open("pgx", c.dsn)
					if err != nil {
						t.Fatal(err)
					}
					store, end = sqlstore.NewPostgreSQL(db), func() { _ = db.Close() }
					use = func() { takeIt(t, db) }
				}
				t.Cleanup(end)
				if c.warm {
					if _, err := store.SetNX(t.Context(), name+by, "token", time.Second); err != nil {
						t.Fatal(err)
					}
				}
				if c.closed {
					end()
				}
				if c.usedUp {
					use()
				}
				for call, fn := range callsOf(store) {
					if works := strings.Fields(c.works); slices.Contains(works, call) || slices.Contains(works, call+"/"+by) {
						if err := fn(trial.Patient(t)); err != nil {
							t.Errorf("%s = %v", call, err)
						}
						continue
					}
					ctx, cancel := context.WithCancel(trial.Patient(t))
					if c.limit > 0 {
						ctx, cancel = context.WithTimeout(t.Context(), c.limit)
					}
					defer cancel()
					if c.limit < 0 {
						cancel()
					}
					err := fn(ctx)
					text := fmt.Sprint(err)
					switch {
					case err == nil:
						t.Errorf("%s: it has worked", call)
					case !strings.Contains(text, c.addr), !strings.Contains(text, c.next), !strings.Contains(text, c.also), c.is != nil && !errors.Is(err, c.is):
						t.Errorf("%s: %v; want %s, %q, %q and an error that is %v", call, err, c.addr, c.next, c.also, c.is)
					case outcomeOf(err) != c.outcome:
						t.Errorf("%s: %v: %s, want %s", call, err, outcomeOf(err), c.outcome)
					case strings.Contains(text, password):
						t.Errorf("%s: %v has the password", call, err)
					}
				}
			})
		}
	}
}

// usedUpServer is the address of a server that has all connections it may have.
func usedUpServer(t *testing.T) (addr string) {
	t.Helper()
	const most = 4
	server := pgtest.Start(t, "fsync=off", fmt.Sprint("max_connections=", most), "superuser_reserved_connections=0", "max_wal_senders=0")
	for range most {
		conn, err := pgx.Connect(t.Context(), server.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port()))
}

// closingServer is the address of a server that shuts down, and waits for a client to leave.
func closingServer(t *testing.T) (addr string) {
	t.Helper()
	server := pgtest.Start(t, "fsync=off")
	if _, err := dial(t, server.DSN()).Exec(t.Context(), "COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; kill -TERM $(head -n 1 postmaster.pid)'"); err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port()))
}

// takeIt takes the only connection of a pool.
func takeIt(t *testing.T, db *sql.DB) {
	t.Helper()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
}

// askForPassword makes the server ask a role for its password. It trusts the others.
func askForPassword(t *testing.T, admin outside, server *pgtest.Server, role string) {
	t.Helper()
	var file string
	if err := admin.pool.QueryRow(t.Context(), "SHOW hba_file").Scan(&file); err != nil {
		t.Fatal(err)
	}
	admin.exec("COPY (VALUES ('host all " + role + " 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) TO '" + file + "'")
	admin.exec("SELECT pg_reload_conf()")
	for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := pgx.Connect(t.Context(), withoutUser(server.DSN())+" user="+role+" password=wrong")
		if err != nil && strings.Contains(err.Error(), "password") {
			return
		}
		if err == nil {
			_ = conn.Close(t.Context())
		}
		if time.Now().After(limit) {
			t.Fatal("the server asks for no password: ", err)
		}
	}
}

// callsOf are one call of each kind.
func callsOf(store *sqlstore.PostgreSQL) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"SetNX":    func(ctx context.Context) error { _, err := store.SetNX(ctx, "a", "token", time.Second); return err },
		"ExpireIf": func(ctx context.Context) error { _, err := store.ExpireIf(ctx, "a", "token", time.Second); return err },
		"DeleteIf": func(ctx context.Context) error { _, err := store.DeleteIf(ctx, "a", "token"); return err },
		"Inspect":  func(ctx context.Context) error { _, err := store.Inspect(ctx, "a"); return err },
		"Identify": func(ctx context.Context) error { _, err := store.Identify(ctx); return err },
		"Check":    func(ctx context.Context) error { _, err := store.Check(ctx); return err },
	}
}

// mute is the address of a server that takes connections and never says a word.
func mute(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String() // the kernel takes connections
}

// The end of a TTL or a ctx makes the Client leave an attempt, whose error it does not have.
func TestTheAddressOfAServerThatFallsSilentUnderACall(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN())
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port()))
	pool, err := sql.Open("pgx", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	one, conns, err := pgxstore.Open(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conns.Close)
	stores := map[string]*sqlstore.PostgreSQL{"pgx": one, "database/sql": sqlstore.NewPostgreSQL(pool)}
	for _, store := range stores {
		if _, err := store.SetNX(t.Context(), "warm", "token", time.Second); err != nil {
			t.Fatal(err)
		}
	}
	server.Pause()
	t.Cleanup(server.Resume)
	for name, store := range stores {
		for end, try := range map[string]func() error{
			"of the ctx under a call of the store": func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := store.SetNX(ctx, "a", "token", time.Second)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v is no context.DeadlineExceeded", err)
				}
				return err
			},
			"of the ctx": func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := locker.New(single.New(store)).TryLock(ctx, "a")
				return err
			},
			"of the TTL": func() error {
				_, err := locker.New(single.New(store)).TryLock(t.Context(), "a", locker.WithTTL(time.Second))
				return err
			},
		} {
			t.Run("the end "+end+" by "+name, func(t *testing.T) {
				t.Parallel()
				// Some calls find out that their connection is dead before they send anything on it.
				if err := try(); err == nil || !strings.Contains(err.Error(), addr) || outcomeOf(err) == permanent {
					t.Errorf("%v; want the address %s", err, addr)
				}
			})
		}
	}
}

// A pool that can't connect is not used up: the advice to make it larger would be wrong.
func TestAPoolThatWaitsForASilentServerIsNotUsedUp(t *testing.T) {
	t.Parallel()
	addr := mute(t)
	host, port, _ := net.SplitHostPort(addr)
	store, pool, err := pgxstore.Open(t.Context(), fmt.Sprintf("host=%s port=%s user=postgres sslmode=disable pool_max_conns=4", host, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			_, err := store.SetNX(ctx, fmt.Sprint(i), "token", time.Second)
			var used *sqlstore.PoolError
			if errors.As(err, &used) || outcomeOf(err) != notSent || !strings.Contains(fmt.Sprint(err), addr) {
				t.Errorf("%v: %s; want that nothing was sent to %s, and no word about the size of the pool", err, outcomeOf(err), addr)
			}
		})
	}
	all.Wait()
}
