package pgxstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// Many programs that waited for one key have died. Each of their waiters has had a reservation, so it is
// late, and its row stays for 90 s. Meanwhile a call writes as many rows, and sends as many messages, as
// without late waiters. But it reads their rows, up to three times, inside its one statement: so much grows
// with their number. Two limits bound it. Each late waiter of a lock has cost a reservation of 200 ms, so
// 90 s have 450 of them. And the first release after 90 s removes all, once. An index of the waiters in line
// would spare the reads. But then each reservation would write to all indexes of the table, and not to the
// row alone.
func TestAReleaseWritesLittleForManyWaitersThatAreLate(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off", "autovacuum=off").DSN())
	for _, n := range []int{50, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d := newDeadWaiters(t, pool, n)
			take := func(want, token, waiter string) work {
				return d.call(want, oldTake, d.key, []byte(token), minuteUS, int64(0), waiter, "dead", true, oldReservation)
			}
			release := func(token string) work { return d.call("1", oldRelease, d.key, []byte(token), oldReservation) }

			take("1", "before", "")
			d.register("-infinity")
			d.within(take("0", "live", "live"), work{read: n + 20, written: 5}, "an attempt that takes a position")
			d.within(take("0", "live", "live"), work{read: n + 20}, "an attempt that finds the lock held")
			d.within(release("before"), work{read: 3*n + 20, written: 5, messages: 2}, "a release")
			d.within(take("1", "live", "live"), work{read: 20, written: 5}, "the attempt of the waiter that lives")
			d.within(release("live"), work{read: 3*n + 20, written: 5, messages: 8}, "a release with nobody in line")
			d.within(take("1", "next", ""), work{read: 2*n + 20, written: 5}, "an attempt with nobody in line")
			d.age()
			d.within(release("next"), work{read: n + 20, written: n + 5}, "the first release after 90 s")
			d.within(take("1", "next", ""), work{read: 20, written: 5}, "an attempt after that")
			d.within(release("next"), work{read: 20, written: 5}, "a release after that")
		})
	}
}

// Readers wait for a writer, and most of their programs die. The release of the writer reserves for all of
// them at once, so only their number bounds the late waiters. It reads each a few times, and not once for
// each other one. The next call notes that they are late, once. Until they are removed after 90 s, a call
// reads them up to ten times, inside its one statement.
func TestAReleaseReadsEachOfManyWaitersAFewTimes(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off", "autovacuum=off").DSN())
	for _, n := range []int{50, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d := newDeadWaiters(t, pool, n)
			enter := func(want, token, group, waiter string) work {
				return d.call(want, oldEnter, d.key, []byte(token), minuteUS, []byte(group), int64(0), false, false, waiter, "dead", true, oldReservation)
			}
			leave := func(token string) work { return d.call("1", oldLeave, d.key, []byte(token), oldReservation) }

			enter("1", "writer", "w", "")
			d.register(nil)
			d.within(enter("0", "live", "r", "live"), work{read: 10*n + 30, written: 5}, "an attempt that takes a position")
			d.within(leave("writer"), work{read: 10*n + 30, written: n + 5, messages: n + 1}, "the release of the writer")
			d.reserve("1 minute")
			d.within(enter("1", "live", "r", "live"), work{read: 5*n + 30, written: 5}, "the attempt of the waiter that lives")
			d.reserve("0")
			d.within(enter("1", "other", "r", ""), work{read: 10*n + 30, written: n + 5}, "the first attempt after the reservations")
			d.within(leave("other"), work{read: 10*n + 30, written: 5, messages: 8}, "a release")
			d.age()
			d.within(leave("live"), work{read: 10*n + 30, written: n + 5}, "the first release after 90 s")
			d.within(enter("1", "last", "w", ""), work{read: 30, written: 5}, "an attempt after that")
			d.within(leave("last"), work{read: 30, written: 5}, "a release after that")
		})
	}
}

// work is what a call does in the database: how many rows it reads and writes, and its messages.
type work struct{ read, written, messages int }

// deadWaiters are the waiters of one key that make no attempt.
type deadWaiters struct {
	t    *testing.T
	conn *pgxpool.Conn
	key  []byte
	n    int
}

func newDeadWaiters(t *testing.T, pool *pgxpool.Pool, n int) *deadWaiters {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Hijack().Close(context.Background()) })
	d := &deadWaiters{t, conn, fmt.Append(nil, "waited for by ", n), n}
	d.exec("LISTEN dead")
	return d
}

func (d *deadWaiters) exec(statement string, args ...any) {
	d.t.Helper()
	if _, err := d.conn.Exec(d.t.Context(), statement, args...); err != nil {
		d.t.Fatal(err)
	}
}

// register adds the waiters, all with a reservation until then; nil: with none.
func (d *deadWaiters) register(reserved any) {
	d.t.Helper()
	d.exec(`INSERT INTO lockstep.waiter (key, waiter, channel, holds, most, seen, reserved)
		SELECT $1, 'dead ' || i, 'dead', 'r', 0, clock_timestamp(), $3::text::timestamptz FROM generate_series(1, $2::int) AS i`, d.key, d.n, reserved)
}

// reserve sets when the reservations of the waiters end, however long a call took.
func (d *deadWaiters) reserve(from string) {
	d.t.Helper()
	d.exec("UPDATE lockstep.waiter SET reserved = clock_timestamp() + $2::text::interval WHERE key = $1", d.key, from)
}

// age lets more than 90 s pass for the waiters.
func (d *deadWaiters) age() {
	d.t.Helper()
	d.exec("UPDATE lockstep.waiter SET seen = seen - interval '2 minutes' WHERE key = $1", d.key)
}

// call sends a statement. want is the outcome, which comes first in its row.
func (d *deadWaiters) call(want, statement string, args ...any) (w work) {
	d.t.Helper()
	tx, err := d.conn.Begin(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	counted := func() (w work) {
		err := tx.QueryRow(d.t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), sum(n_tup_ins + n_tup_upd + n_tup_del)
			FROM pg_stat_xact_user_tables WHERE schemaname = 'lockstep'`).Scan(&w.read, &w.written)
		if err != nil {
			d.t.Fatal(err)
		}
		return w
	}
	before := counted()
	rows, err := tx.Query(d.t.Context(), statement, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		d.t.Fatal(err)
	}
	for rows.Next() {
		if values, err := rows.Values(); err != nil || fmt.Sprint(values[0]) != want {
			d.t.Fatalf("%s gives %v, %v; want %s", statement, values, err, want)
		}
	}
	if rows.Err() != nil {
		d.t.Fatal(rows.Err())
	}
	after := counted()
	if err := tx.Commit(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	d.exec("SELECT pg_notify('dead', 'end')")
	for ; ; w.messages++ {
		m, err := d.conn.Conn().WaitForNotification(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		if m.Payload == "end" {
			break
		}
	}
	w.read, w.written = after.read-before.read, after.written-before.written
	return w
}

func (d *deadWaiters) within(got, most work, call string) {
	d.t.Helper()
	d.t.Logf("%s: %+v", call, got)
	if got.read > most.read || got.written > most.written || got.messages > most.messages {
		d.t.Errorf("with %d dead waiters %s does %+v; want %+v at most", d.n, call, got, most)
	}
}
