package pgxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// operator looks at a server on one connection.
type operator struct {
	*pgx.Conn
	t *testing.T
}

func watchOver(t *testing.T, server *pgtest.Server) operator {
	t.Helper()
	c, err := pgx.Connect(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return operator{c, t}
}

func (o operator) ask(question string, dest any, args ...any) {
	o.t.Helper()
	if err := o.QueryRow(o.t.Context(), question, args...).Scan(dest); err != nil {
		o.t.Fatalf("%s: %v", question, err)
	}
}

// names counts the connections of clients by name. The operator does not count.
func (o operator) names() map[string]int {
	o.t.Helper()
	rows, err := o.Query(o.t.Context(), `SELECT application_name, count(*) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY 1`)
	if err != nil {
		o.t.Fatal(err)
	}
	names := map[string]int{}
	var name string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { names[name] = n; return nil }); err != nil {
		o.t.Fatal(err)
	}
	return names
}

// awaitNames waits until the connections have these names. Those of the holder do not count: it opens another
// one if a machine is so slow that the first seems dead.
func (o operator) awaitNames(want map[string]int) {
	o.t.Helper()
	var got map[string]int
	for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got = o.names()
		delete(got, holderName)
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(limit) {
			o.t.Fatalf("the connections are %v; want %v", got, want)
		}
	}
}

// awaitWaiters waits until so many stand in the queue: their first attempts are done.
func (o operator) awaitWaiters(key string, want int) {
	o.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		n := 0
		o.ask("SELECT count(*) FROM lockstep.waiter WHERE key = $1", &n, []byte(key))
		if n == want {
			return
		}
		if time.Now().After(limit) {
			o.t.Fatalf("%d wait for %s; want %d; the connections are %v", n, key, want, o.names())
		}
	}
}

// program is one with a pool of its own for locks. Without a TTL in opts its leases outlive a machine that
// stands still for some seconds.
func program(t *testing.T, dsn string, opts ...locker.ClientOption) (*locker.Client, *pgxpool.Pool) {
	t.Helper()
	store, pool, err := pgxstore.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return locker.New(single.New(store), append([]locker.ClientOption{locker.WithTTL(30 * time.Second)}, opts...)...), pool
}

const holderName = "holder"

// contended starts a server on which a program has the lock k.
func contended(t *testing.T, settings ...string) (server *pgtest.Server, at operator, first *locker.Lock) {
	t.Helper()
	server = pgtest.Start(t, settings...)
	install(t, server.DSN()).Close()
	at = watchOver(t, server)
	holder, _ := program(t, server.DSN()+" application_name="+holderName)
	return server, at, lock(t, holder, "k")
}

// lockBehind asks for a lock in the background.
func lockBehind(t *testing.T, locks *locker.Client, key string) (granted <-chan *locker.Lock) {
	t.Helper()
	return lockWith(t, locks, key, locker.WithWait(2*patience))
}

func lockWith(t *testing.T, locks *locker.Client, key string, opts ...locker.Option) (granted <-chan *locker.Lock) {
	t.Helper()
	got := make(chan *locker.Lock, 1)
	go func() {
		defer close(got)
		l, err := locks.Lock(t.Context(), key, opts...)
		if err != nil {
			t.Errorf("Lock(%s) = %v", key, err)
			return
		}
		got <- l
	}()
	return got
}

func receive(t *testing.T, granted <-chan *locker.Lock, what string) *locker.Lock {
	t.Helper()
	select {
	case l := <-granted:
		if l == nil {
			t.FailNow()
		}
		return l
	case <-time.After(patience):
		t.Fatalf("not granted within %v: %s", patience, what)
	}
	return nil
}

func lock(t *testing.T, locks *locker.Client, key string) *locker.Lock {
	t.Helper()
	l, err := locks.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t *testing.T, l *locker.Lock) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
}

// withSlots are settings of a server with so many connections, and one more for an operator.
func withSlots(slots int) []string {
	return []string{"fsync=off", "superuser_reserved_connections=0", fmt.Sprint("max_connections=", slots+1)}
}

func TestAProgramThatWaitsHasOneConnection(t *testing.T) {
	t.Parallel()
	twentyMigrate(t, func(_ int, dsn string) *locker.Client {
		locks, _ := program(t, dsn)
		return locks
	}, func(at operator) {
		at.awaitWaiters("migration", migrating)
		at.awaitNames(map[string]int{"lockstep wake-ups": migrating})
	})
}

// Through database/sql each program has a name of its own. The test runs beside no other test of this package:
// an attempt that has no answer for two seconds is followed by one on another connection, which is no fault.
func TestTwentyProgramsThatPollHaveOneConnectionEach(t *testing.T) {
	want := map[string]int{}
	twentyMigrate(t, func(i int, dsn string) *locker.Client {
		name := fmt.Sprint("program", i)
		want[name] = 1
		db, err := sql.Open("pgx", dsn+" application_name="+name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(1) // one that was opened beside the first does not stay
		return locker.New(single.New(sqlstore.NewPostgreSQL(db)), locker.WithTTL(30*time.Second))
	}, func(at operator) { at.awaitNames(want) })
}

const migrating = 20 // programs

// twentyMigrate starts twenty programs at once, each of which waits for one migration, on a server with 30
// connections. The migration opens a connection too, as in a service. wait returns when all wait.
func twentyMigrate(t *testing.T, open func(i int, dsn string) *locker.Client, wait func(operator)) {
	t.Helper()
	server := pgtest.Start(t, withSlots(30)...)
	install(t, server.DSN()).Close()
	at := watchOver(t, server)
	holder, _ := program(t, server.DSN()+" application_name="+holderName)
	first := lock(t, holder, "migration")
	var all sync.WaitGroup
	var migrations atomic.Int64
	for i := range migrating {
		locks := open(i, server.DSN())
		all.Go(func() {
			err := locks.Do(t.Context(), "migration", func(ctx context.Context, _ *locker.Lock) error {
				began := time.Now()
				c, err := pgx.Connect(ctx, server.DSN())
				for busy := new(pgconn.PgError); errors.As(err, &busy) && busy.Code == "53300" && time.Since(began) < patience; {
					// On a busy machine the server ends the connections of the migrations before later. Those of the
					// programs that wait were counted.
					time.Sleep(10 * time.Millisecond)
					c, err = pgx.Connect(ctx, server.DSN())
				}
				if err != nil {
					return fmt.Errorf("migrate: %w", err)
				}
				defer func() { _ = c.Close(ctx) }()
				_, err = c.Exec(ctx, "SELECT pg_sleep(0.05)")
				return err
			}, locker.WithWait(2*patience))
			if err != nil {
				t.Error(err)
				return
			}
			migrations.Add(1)
		})
	}
	wait(at)
	unlock(t, first)
	all.Wait()
	if n := migrations.Load(); n != migrating {
		t.Errorf("%d of %d migrations succeeded", n, migrating)
	}
}

// The connection of a waiter is enough to be granted, to renew and to release.
func TestAWaiterNeedsNoOtherConnection(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	server, operator, first := contended(t, withSlots(6)...)
	waiter, _ := program(t, server.DSN(), locker.WithTTL(ttl))
	granted := lockBehind(t, waiter, "k")
	operator.awaitWaiters("k", 1)
	operator.awaitNames(map[string]int{"lockstep wake-ups": 1})

	var others []*pgx.Conn // use up the server
	for {
		c, err := pgx.Connect(t.Context(), server.DSN())
		if err != nil {
			var told *pgconn.PgError
			if !errors.As(err, &told) || told.Code != "53300" {
				t.Fatal(err)
			}
			break
		}
		others = append(others, c)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
	}
	late, _ := program(t, server.DSN())
	if _, err := late.TryLock(t.Context(), "k"); outcomeOf(err) != notSent || !strings.Contains(fmt.Sprint(err), "53300") {
		t.Errorf("TryLock without a connection = %v; want that nothing was sent", err)
	}
	lateGranted := lockBehind(t, late, "k")
	unlock(t, first)
	l := receive(t, granted, "its connection is there")
	var from time.Time
	operator.ask("SELECT clock_timestamp()", &from)
	eventually(t, "the lock lives for twice the TTL", func() bool {
		if err := l.Context().Err(); err != nil {
			t.Fatalf("it is lost: %v", context.Cause(l.Context()))
		}
		var lives bool
		operator.ask("SELECT count(*) = 1 FROM lockstep.lock WHERE key = 'k' AND expires > $1", &lives, from.Add(2*ttl))
		return lives
	})
	unlock(t, l)
	var holds bool // the late one may have a connection by now, and the lock
	if operator.ask("SELECT count(*) > 0 FROM lockstep.lock WHERE key = 'k' AND value = $1", &holds, []byte(l.Lease().Token)); holds {
		t.Error("the release of the waiter is not done")
	}
	_ = others[0].Close(t.Context())
	unlock(t, receive(t, lateGranted, "it asks until it gets a connection"))
}

// Counterexample: an attempt waits for a row on the connection of the waiter, and the wake-up waits behind
// it.
func TestAWaiterIsWokenWhileACallWaitsForATransaction(t *testing.T) {
	t.Parallel()
	server, operator, first := contended(t, "fsync=off")
	waiter, _ := program(t, server.DSN())
	unlock(t, lock(t, waiter, "row"))
	granted := lockBehind(t, waiter, "k")
	operator.awaitWaiters("k", 1)
	operator.awaitNames(map[string]int{"lockstep wake-ups": 1})
	tx, err := watchOver(t, server).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM lockstep.lock WHERE key = 'row' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	blocked := lockWith(t, waiter, "row") // its attempt has the time of the TTL
	eventually(t, "the attempt waits for the row on a connection of the pool", func() bool {
		var names string
		operator.ask("SELECT coalesce(string_agg(application_name, ','), '') FROM pg_stat_activity WHERE wait_event_type = 'Lock'", &names)
		return names == "lockstep"
	})
	unlock(t, first)
	unlock(t, receive(t, granted, "another call waits for a row"))
	select {
	case <-blocked:
		t.Error("granted before the end of the transaction")
	default:
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	unlock(t, receive(t, blocked, "the transaction has ended"))
}

// Counterexample: the connection that has served the grant falls silent, and all renewals and the release
// wait for it.
func TestALockSurvivesTheConnectionThatWasGrantedIt(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second // longer than a busy machine stands still
	server := pgtest.Start(t, "fsync=off")
	install(t, server.DSN()).Close()
	operator := watchOver(t, server)
	relay := redistest.NewRelay(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(server.Port())))
	_, port, err := net.SplitHostPort(relay.Addr())
	if err != nil {
		t.Fatal(err)
	}
	holder, _ := program(t, server.DSN()+" application_name="+holderName)
	first := lock(t, holder, "k")
	waiter, _ := program(t, strings.ReplaceAll(server.DSN(), strconv.Itoa(server.Port()), port), locker.WithTTL(ttl))
	t.Cleanup(relay.CutAll) // what is silent would be waited for
	granted := lockBehind(t, waiter, "k")
	operator.awaitWaiters("k", 1)
	operator.awaitNames(map[string]int{"lockstep wake-ups": 1})
	unlock(t, first)
	l := receive(t, granted, "the holder has released")
	if n := relay.Forsake(); n == 0 {
		t.Error("no connection was forgotten")
	}
	var from time.Time
	operator.ask("SELECT clock_timestamp()", &from)
	eventually(t, "the lock lives for twice the TTL", func() bool {
		if err := l.Context().Err(); err != nil {
			t.Fatalf("it is lost: %v", context.Cause(l.Context()))
		}
		var lives bool
		operator.ask("SELECT count(*) = 1 FROM lockstep.lock WHERE key = 'k' AND expires > $1", &lives, from.Add(2*ttl))
		return lives
	})
	unlock(t, l)
}

// The application can use its whole pool while somebody waits.
func TestAWaiterTakesNothingFromThePoolOfTheApplication(t *testing.T) {
	t.Parallel()
	server, operator, first := contended(t, "fsync=off")
	pool := application(t, server.DSN()+" application_name=app", 2)
	granted := lockBehind(t, locker.New(single.New(pgxstore.New(pool)), locker.WithTTL(30*time.Second)), "k")
	operator.awaitWaiters("k", 1)
	end := occupy(t, pool)
	operator.awaitNames(map[string]int{"app": 3})
	end()
	unlock(t, first)
	unlock(t, receive(t, granted, "the holder has released"))
}

// Several calls at once have needed several connections. The pool gives them back while the program waits.
func TestAProgramThatWaitsGivesConnectionsBack(t *testing.T) {
	t.Parallel()
	server, operator, first := contended(t, "fsync=off")
	waiter, pool := program(t, server.DSN())
	var all []*pgxpool.Conn
	for range 3 {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.Release()
	}
	granted := lockBehind(t, waiter, "k")
	operator.awaitWaiters("k", 1)
	operator.awaitNames(map[string]int{"lockstep wake-ups": 1})
	unlock(t, first)
	unlock(t, receive(t, granted, "the holder has released"))
}

// A connection that is lent is replaced when it is as old as a connection of the pool may be: behind one
// address there may be another server since.
func TestAConnectionThatIsLentIsReplacedInTime(t *testing.T) {
	t.Parallel()
	server, operator, first := contended(t, "fsync=off")
	waiter, _ := program(t, server.DSN()+" pool_max_conn_lifetime=1s")
	granted := lockBehind(t, waiter, "k")
	seen := map[int]bool{}
	eventually(t, "three connections, one after the other", func() bool {
		pid := 0
		operator.ask("SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE application_name = 'lockstep wake-ups'", &pid)
		seen[pid] = seen[pid] || pid != 0
		delete(seen, 0)
		return len(seen) == 3
	})
	unlock(t, first)
	unlock(t, receive(t, granted, "the holder has released"))
}

// Calls of many kinds share the connection that listens, and their ctx may end at any moment.
func TestCallsThatShareTheConnectionThatListens(t *testing.T) {
	t.Parallel()
	server, _, first := contended(t, "fsync=off")
	waiter, _ := program(t, server.DSN())
	granted := lockBehind(t, waiter, "k")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n*(i+1))*100*time.Microsecond)
				if l, err := waiter.Lock(ctx, fmt.Sprint("short/", n%3)); err == nil {
					_ = l.Unlock(ctx)
				}
				cancel()
			}
		})
	}
	all.Wait()
	unlock(t, first)
	unlock(t, receive(t, granted, "the holder has released"))
	drained, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := waiter.Drain(drained); err != nil {
		t.Errorf("Drain = %v", err)
	}
}

// Through database/sql a waiter polls, and gives its connection back after each attempt. On a busy machine the
// connection may seem dead, and then there is another one.
func TestAProgramThatPollsHasOneConnection(t *testing.T) {
	t.Parallel()
	server, operator, first := contended(t, "fsync=off")
	trial.WhileBusy(t, time.Second, func(take testing.TB, wait time.Duration) {
		name := fmt.Sprint("polls for ", wait)
		db, err := sql.Open("pgx", server.DSN()+" application_name='"+name+"'")
		if err != nil {
			take.Fatal(err)
		}
		take.Cleanup(func() { _ = db.Close() })
		_, err = locker.New(single.New(sqlstore.NewPostgreSQL(db))).Lock(t.Context(), "k", locker.WithWait(wait))
		var waited *locker.Error
		if !errors.As(err, &waited) || !errors.Is(err, locker.ErrHeld) || waited.Attempts < 2 {
			take.Fatalf("Lock = %v; want a wait with more than one attempt", err)
		}
		if n := operator.names()[name]; n != 1 {
			take.Errorf("%d connections; want one", n)
		}
		if s := db.Stats(); s.MaxIdleClosed != 0 {
			take.Errorf("%d connections were too many to be kept; want none", s.MaxIdleClosed)
		}
	})
	unlock(t, first)
}
