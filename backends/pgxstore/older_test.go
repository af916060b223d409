package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// An oldProgram sends statements as a program of version 1 did, and listens on the channel old.
type oldProgram struct {
	t    testing.TB
	pool *pgxpool.Pool
	ear  *pgx.Conn
}

func newOldProgram(t testing.TB, pool *pgxpool.Pool) oldProgram {
	t.Helper()
	c, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ear := c.Hijack()
	t.Cleanup(func() { _ = ear.Close(context.Background()) })
	if _, err := ear.Exec(t.Context(), "LISTEN old"); err != nil {
		t.Fatal(err)
	}
	return oldProgram{t, pool, ear}
}

// says sends one statement. want is a pattern of its row, as text.
func (p oldProgram) says(want, statement string, args ...any) {
	p.t.Helper()
	rows, err := p.pool.Query(p.t.Context(), statement, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		p.t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			p.t.Fatalf("%s: %v", statement, err)
		}
		for _, value := range values {
			switch is := value.(type) {
			case nil:
				value = ""
			case []byte:
				value = string(is)
			}
			got = append(got, fmt.Sprint(value))
		}
	}
	if text := strings.Join(got, " "); rows.Err() != nil || !regexp.MustCompile("^"+want+"$").MatchString(text) {
		p.t.Errorf("%s with %v gives %q, %v; want %q", statement, args, text, rows.Err(), want)
	}
}

// hears waits for a message to the program.
func (p oldProgram) hears(want string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	n, err := p.ear.WaitForNotification(ctx)
	if err != nil || n.Payload != want {
		p.t.Fatalf("the program of version 1 hears %v, %v; want %q", n, err, want)
	}
}

// The statements of a program of version 1, but for Check's.
const (
	oldTake         = "SELECT outcome, number, left_us, place, holder FROM lockstep.take($1,$2,$3,$4,$5,$6,$7,$8)"
	oldExtend       = "SELECT outcome FROM lockstep.extend($1,$2,$3)"
	oldRelease      = "SELECT outcome FROM lockstep.release($1,$2,$3)"
	oldRaise        = "SELECT outcome FROM lockstep.raise($1,$2,$3)"
	oldSweep        = "SELECT lockstep.sweep()"
	oldQuit         = "SELECT lockstep.quit($1,$2,$3)"
	oldEnter        = "SELECT outcome, number, left_us, place, holder, holds, slot FROM lockstep.enter($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)"
	oldRenew        = "SELECT outcome FROM lockstep.renew($1,$2,$3)"
	oldLeave        = "SELECT outcome FROM lockstep.leave($1,$2,$3)"
	oldInspect      = "SELECT lockstep.inspect($1,$2)"
	oldList         = "SELECT lockstep.list($1,$2,$3,$4,$5)"
	oldEvict        = "SELECT outcome FROM lockstep.evict($1,$2,$3,$4,$5)"
	oldGuard        = "SELECT outcome FROM lockstep.guard($1,$2)"
	oldTransfer     = "SELECT outcome, number, left_us, holder FROM lockstep.transfer($1,$2,$3,$4,$5)"
	oldTransferHold = "SELECT outcome, number, left_us, holds, slot FROM lockstep.transfer_hold($1,$2,$3,$4,$5)"
	oldWatch        = "SELECT lockstep.watch($1,$2)"
	oldUnwatch      = "SELECT lockstep.unwatch($1,$2)"

	oldReservation = int64(2_000_000)
	minuteUS       = int64(60_000_000)
)

// Each statement that a program of version 1 sends means the same with the tables and functions of
// this version.
func TestTheStatementsOfAnOlderProgramWorkAfterAnInstall(t *testing.T) {
	pool := older(t)
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	olderProgramWorks(t, pool)
}

func olderProgramWorks(t testing.TB, pool *pgxpool.Pool) {
	p, k := newOldProgram(t, pool), []byte("k")
	a, b, c := []byte("a"), []byte("b"), []byte("c")
	const number, us = `\d{16}`, `\d{8}`
	p.says("1 "+number+" 0 0 ", oldTake, k, a, minuteUS, int64(2), "", "old", false, oldReservation)
	p.says("1 "+number+" 0 0 ", oldTake, k, a, minuteUS, int64(2), "", "old", false, oldReservation)
	p.says("0 0 "+us+" 0 ", oldTake, k, b, minuteUS, int64(2), "", "old", false, oldReservation)
	p.says("1", oldExtend, k, a, minuteUS)
	p.says("0", oldExtend, k, b, minuteUS)
	p.says("1", oldGuard, k, a)
	p.says("0", oldGuard, k, b)
	p.says("1", oldRaise, k, a, int64(5_000_000_000_000_000))
	p.says("0 0 "+us+" 1 ", oldTake, k, b, minuteUS, int64(2), "one", "old", true, oldReservation)
	p.says("0 0 "+us+" 2 ", oldTake, k, b, minuteUS, int64(2), "two", "old", true, oldReservation)
	p.says("1 5000000000000001 0 ", oldTransfer, k, a, c, minuteUS, true)
	p.says(`.*"holding": 1, .*"waiting": 2.*`, oldInspect, k, int64(10))
	p.says(`.*"key": "6b", .*"next": "".*`, oldList, []byte{}, nil, []byte{}, int64(10), int64(10))
	p.says("1", oldRelease, k, c, oldReservation)
	p.hears("rone@6b")
	p.hears("ntwo@6b")
	p.says("0 0 \\d+ 0 ", oldTake, k, a, minuteUS, int64(0), "", "old", true, oldReservation)
	p.says("1 5000000000000002 0 0 ", oldTake, k, b, minuteUS, int64(2), "one", "old", true, oldReservation)
	p.says("true", oldQuit, k, "two", oldReservation)
	p.says("false", oldQuit, k, "two", oldReservation)
	p.says("true", oldWatch, k, "old")
	p.says("1", oldRelease, k, b, oldReservation)
	p.hears("w@6b")
	p.says("false", oldUnwatch, k, "old")
	p.says("true", oldWatch, k, "old")
	p.says("true", oldUnwatch, k, "old")
	p.says("1 1 0 0 ", oldTake, []byte("counted"), a, minuteUS, int64(1), "", "old", false, oldReservation)

	enter := func(token []byte, waiter string) []any {
		return []any{[]byte("shared"), token, minuteUS, []byte("group"), int64(1), true, true, waiter, "old", true, oldReservation}
	}
	p.says("1 "+number+" 0 0  1 0", oldEnter, enter(a, "")...)
	p.says("0 0 "+us+" 1  1 -1", oldEnter, enter(b, "three")...)
	p.says("1", oldRenew, []byte("shared"), a, minuteUS)
	p.says("1 "+number+" 0 1 0", oldTransferHold, []byte("shared"), a, c, minuteUS, true)
	p.says("1", oldGuard, []byte("shared"), c)
	p.says("1", oldLeave, []byte("shared"), c, oldReservation)
	p.hears("rthree@736861726564")
	p.says("1 "+number+" 0 0  1 0", oldEnter, enter(b, "three")...)

	var prints string
	if err := pool.QueryRow(t.Context(), "SELECT lockstep.print('b')").Scan(&prints); err != nil {
		t.Fatal(err)
	}
	p.says("4", oldEvict, []byte("shared"), prints, nil, false, oldReservation) // no token of a Client
	p.says("1", oldEvict, []byte("shared"), prints, nil, true, oldReservation)
	p.says("0", oldRenew, []byte("shared"), b, minuteUS)
	p.says("true", oldSweep)
}

// Waiters of an old and of a new program stand in line when the functions are replaced. Both keep
// their positions, and hear of their turn.
func TestQueuedWaitersKeepTheirPositionsOverAnInstall(t *testing.T) {
	const reservation = 2 * time.Second // no longer one is possible
	trial.WhileBusy(t, reservation, func(t testing.TB, _ time.Duration) { keepTheirPositions(t) })
}

func keepTheirPositions(t testing.TB) {
	pool := older(t)
	p, k := newOldProgram(t, pool), []byte("k")
	s := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	granted(t)(s.SetNX(t.Context(), "k", "first", maxTTL))
	woken := make(chan struct{}, 1)
	stands := func(when string) {
		t.Helper()
		p.says(`0 0 \d+ 1 `, oldTake, k, []byte("old"), minuteUS, int64(0), "old", "old", true, oldReservation)
		if r, err := s.SetNXQueued(t.Context(), "k", "new", time.Minute, backends.Turn{Waiter: "new"}); err != nil || r.OK || r.Position != 2 {
			t.Errorf("%s: SetNXQueued = %+v, %v; want the position 2", when, r, err)
		}
	}
	p.says(`0 0 \d+ [01] `, oldTake, k, []byte("old"), minuteUS, int64(0), "old", "old", true, oldReservation)
	if err := s.WatchQueued(t.Context(), "k", "new", func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}); err != nil {
		t.Fatal(err)
	}
	stands("before Install")
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	stands("after Install")
	if ok, err := s.DeleteIf(t.Context(), "k", "first"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	p.hears("rold@6b")
	if r, err := s.SetNXQueued(t.Context(), "k", "new", time.Minute, backends.Turn{Waiter: "new"}); err != nil || r.OK {
		t.Errorf("SetNXQueued = %+v, %v; want the key reserved for the old waiter", r, err)
	}
	p.says(`1 0 0 0 `, oldTake, k, []byte("old"), minuteUS, int64(0), "old", "old", true, oldReservation)
	for len(woken) > 0 { // the reminder that it is next
		<-woken
	}
	p.says("1", oldRelease, k, []byte("old"), oldReservation)
	select {
	case <-woken:
	case <-time.After(patience):
		t.Fatal("the new waiter hears nothing")
	}
	granted(t)(s.SetNXQueued(t.Context(), "k", "new", time.Minute, backends.Turn{Waiter: "new"}))
}

// Transactions use up the pool, so the calls go over the connections of the reserve. A server may not let all
// roles call a new function: then somebody has to grant it after the Install.
func TestAHolderKeepsItsLockBeforeAnInstallAndBeforeItsGrant(t *testing.T) {
	t.Run("version 1", func(t *testing.T) {
		keepsItsLock(t, older(t).Config().ConnString())
	})
	t.Run("without the right to call a function of the reserve", func(t *testing.T) {
		dsn := pgtest.Start(t, "fsync=off").DSN()
		outside{t, install(t, dsn)}.exec(`CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA lockstep TO app;
			GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockstep TO app;
			GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lockstep TO app;
			REVOKE EXECUTE ON FUNCTION lockstep.at_once FROM PUBLIC, app`)
		keepsItsLock(t, dsn+" user=app")
	})
}

func keepsItsLock(t *testing.T, dsn string) {
	t.Helper()
	pool := application(t, dsn, 2)
	s := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL), pgxstore.WithoutWakes())
	granted(t)(s.SetNX(t.Context(), "k", "token", maxTTL))
	granted(t)(s.Enter(t.Context(), "permit", "token", maxTTL, backends.Admission{Limit: 1}))
	occupy(t, pool)
	for what, call := range map[string]func() (bool, error){
		"ExpireIf": func() (bool, error) { return s.ExpireIf(t.Context(), "k", "token", maxTTL) },
		"Renew":    func() (bool, error) { return s.Renew(t.Context(), "permit", "token", maxTTL) },
	} {
		if ok, err := call(); err != nil || !ok {
			t.Errorf("%s = %v, %v", what, ok, err)
		}
	}
	other := dial(t, dsn)
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM lockstep.lock WHERE key = 'k' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := s.ExpireIf(ctx, "k", "token", maxTTL)
		ended <- err
	}()
	for most := 0; ; {
		select {
		case err := <-ended:
			if err == nil || most > 0 {
				t.Errorf("ExpireIf waits for a row on a connection of the reserve: %d were seen, and %v", most, err)
			}
			return
		default:
			var n int
			if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			most = max(most, n)
		}
	}
}

// An old program installs once more after a new one, and does not know of versions. The server
// refuses that, so nothing is changed: see tell in queue.sql.
func TestAnOlderProgramDoesNotReplaceWhatANewerOneHasInstalled(t *testing.T) {
	pool := older(t)
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	s := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	granted(t)(s.SetNX(t.Context(), "held", "token", maxTTL))
	_, err := pool.Exec(t.Context(), version1(t), pgx.QueryExecModeSimpleProtocol)
	if told, ok := errors.AsType[*pgconn.PgError](err); !ok || told.Code != "42P13" {
		t.Errorf("the old schema once more = %v; want an invalid_function_definition", err)
	}
	if r, err := s.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) != nil {
		t.Errorf("Check = %v, %v; want nothing changed", r, err)
	}
	if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) != nil {
		t.Errorf("Check after Install = %v, %v", r, err)
	}
	if ok, err := s.ExpireIf(t.Context(), "held", "token", maxTTL); err != nil || !ok {
		t.Errorf("ExpireIf = %v, %v; want it held still", ok, err)
	}
}

// An old program of version 2 installs once more after a new one. With its guard, renewals would wait for
// transactions again.
func TestAProgramOfVersion2DoesNotPutItsFunctionsBack(t *testing.T) {
	text, err := os.ReadFile("../sqlstore/testdata/version2.postgresql.sql")
	if err != nil {
		t.Fatal(err)
	}
	g := newGuards(t)
	installsVersion2 := func() error {
		_, err := g.pool.Exec(t.Context(), string(text), pgx.QueryExecModeSimpleProtocol)
		return err
	}
	told, ok := errors.AsType[*pgconn.PgError](installsVersion2())
	if !ok || !strings.Contains(told.Message, "are of version 3, from a newer program; this one has version 2, and replaces nothing") {
		t.Errorf("Install of version 2 after that of version 3 = %v; want an error that says so", told)
	}
	if r, err := g.store.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) != nil {
		t.Errorf("Check = %v, %v; want nothing changed", r, err)
	}

	outside{t, g.pool}.exec("UPDATE lockstep.version SET number = 2") // as before the new program's Install
	if err := installsVersion2(); err != nil {
		t.Fatal(err)
	}
	if r, err := g.store.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) == nil || !strings.Contains(r.Err(sqlstore.ProblemPersistence).Error(), "lockstep.guard(bytea, bytea) is another one") {
		t.Errorf("Check of version 2 = %v, %v; want the old function found", r, err)
	}
	if err := pgxstore.Install(trial.Patient(t), g.pool); err != nil {
		t.Fatal(err)
	}
	if r, err := g.store.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) != nil {
		t.Errorf("Check after Install = %v, %v", r, err)
	}
	if told, ok := errors.AsType[*pgconn.PgError](installsVersion2()); !ok || told.Code != "0A000" {
		t.Errorf("Install of version 2 after an upgrade = %v; want an error", told)
	}
}
