package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// scale is small, or large with LOCKSTEP_TORTURE=1.
func scale(small, large int) int {
	if full.Size() {
		return large
	}
	return small
}

// backdate lets all rows be older by d.
func (o outside) backdate(d time.Duration) {
	o.t.Helper()
	o.exec(strings.ReplaceAll(`UPDATE lockstep.lock SET expires = expires - AGE, look = look - AGE;
		UPDATE lockstep.number SET kept = kept - AGE, look = look - AGE;
		UPDATE lockstep.hold SET expires = expires - AGE;
		UPDATE lockstep.waiter SET seen = seen - AGE, reserved = reserved - AGE`, "AGE", fmt.Sprintf("interval '%d microseconds'", d.Microseconds())))
}

// rows counts the rows of all tables but that of the version.
func (o outside) rows() (n int) {
	o.t.Helper()
	err := o.pool.QueryRow(o.t.Context(), `SELECT (SELECT count(*) FROM lockstep.lock) + (SELECT count(*) FROM lockstep.number) + (SELECT count(*) FROM lockstep.hold)
		+ (SELECT count(*) FROM lockstep.waiter) + (SELECT count(*) FROM lockstep.watcher)`).Scan(&n)
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}

func granted(t testing.TB) func(backends.Result, error) uint64 {
	return func(r backends.Result, err error) uint64 {
		t.Helper()
		if err != nil || !r.OK {
			t.Fatalf("got %+v, %v; want it granted", r, err)
		}
		return r.Fence
	}
}

// A program comes each minute, takes a key of its own, and ends. Every other one crashes, and
// leaves a waiter, a watcher and a number of a minute too. It has no time to sweep later, and no
// other program sweeps. A week has 10,080 minutes: all of them with LOCKSTEP_TORTURE=1. 400 show
// the same, since a row is to live for an hour.
func TestAWeekOfProgramsThatLiveForASecondLeavesFewRows(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	o, grant := outside{t, pool}, granted(t)
	first := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	grant(first.SetNX(t.Context(), "held", "token", maxTTL))
	grant(first.Enter(t.Context(), "permits", "token", maxTTL, backends.Admission{Limit: 2}))
	if n := grant(first.SetNXFenced(t.Context(), "counted", "token", time.Minute)); n != 1 {
		t.Fatalf("the number is %d", n)
	}
	if err := first.WatchQueued(t.Context(), "held", "waiter", func() {}); err != nil {
		t.Fatal(err)
	}
	last, minutes := uint64(0), scale(400, 10_080)
	for i := range minutes {
		s, key := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL), pgxstore.WithoutWakes()), fmt.Sprintf("job %05d", i*7919%minutes)
		grant(s.SetNX(t.Context(), key, "token", 30*time.Second))
		switch i % 4 {
		case 0:
			if ok, err := s.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
				t.Fatal(ok, err)
			}
		case 1:
			grant(s.Enter(t.Context(), "shared "+key, "token", 30*time.Second, backends.Admission{}))
		case 2:
			o.exec(`INSERT INTO lockstep.waiter (key, waiter, channel, holds, most, seen) VALUES ($1, $2, 'nobody', '', 0, clock_timestamp())`, []byte(key), fmt.Sprint(i))
		case 3:
			o.exec(`INSERT INTO lockstep.watcher VALUES ($1, 'nobody')`, []byte(key))
		}
		if n, err := first.SetNXQueued(t.Context(), "held", "next", time.Minute, backends.Turn{Waiter: "waiter"}); err != nil || n.OK || n.Position != 1 {
			t.Fatalf("in minute %d the queued waiter has the position %d, %v", i, n.Position, err)
		}
		if i%20 == 0 { // numbers in use
			if n := grant(s.SetNXNumbered(t.Context(), "numbered", fmt.Sprint("token ", i), time.Minute, backends.Turn{})); n <= last {
				t.Fatalf("in minute %d the number is %d after %d", i, n, last)
			} else {
				last = n
			}
			ok, err := s.ExpireIf(t.Context(), "held", "token", maxTTL)
			if err != nil || !ok {
				t.Fatalf("in minute %d held was not held any more: %v", i, err)
			}
			if ok, err = s.Renew(t.Context(), "permits", "token", maxTTL); err != nil || !ok {
				t.Fatalf("in minute %d the permit had ended: %v", i, err)
			}
		}
		o.backdate(time.Minute)
	}
	if n := o.rows(); n > 200 || n < 60 {
		t.Errorf("%d rows are left after %d minutes; want those of the last hour, and at most 200", n, minutes)
	}
	if n := grant(first.SetNXFenced(t.Context(), "counted", "token", time.Minute)); n != 2 {
		t.Errorf("the number is %d; want 2", n)
	}
}

// Sweeps find keys that have been free for hours, just when somebody takes them, and just when two
// wait for one.
func TestASweepRemovesNoKeyThatIsTakenMeanwhile(t *testing.T) {
	removesNoKeyThatIsTaken(t, install(t, pgtest.Start(t, "fsync=off").DSN()), scale(100, 2000))
}

func removesNoKeyThatIsTaken(t testing.TB, pool *pgxpool.Pool, rounds int) {
	o, s := outside{t, pool}, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	last := map[string]uint64{}
	for round := range rounds {
		o.exec(`UPDATE lockstep.lock SET expires = '-infinity', look = '-infinity'; UPDATE lockstep.hold SET expires = '-infinity';
			UPDATE lockstep.number SET look = '-infinity', kept = CASE WHEN key < 'd' THEN '-infinity' ELSE kept END`)
		start := make(chan struct{})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				<-start
				if err := s.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		numbers, token := make([]uint64, len(keys)), fmt.Sprint("token ", round)
		for i, key := range keys {
			all.Go(func() {
				<-start
				r, err := s.SetNXNumbered(t.Context(), key, token, 10*time.Minute, backends.Turn{})
				if err != nil || !r.OK {
					t.Errorf("SetNXNumbered = %+v, %v", r, err)
				}
				numbers[i] = r.Fence
				if r, err := s.Enter(t.Context(), "shared "+key, token, 10*time.Minute, backends.Admission{Limit: 1}); err != nil || !r.OK {
					t.Errorf("Enter = %+v, %v", r, err)
				}
			})
		}
		line := newLine(t, s, fmt.Sprint("queue ", round%4))
		for i := range line.waiters {
			all.Go(func() {
				<-start
				line.asks(i)
			})
		}
		close(start)
		all.Wait()
		line.served()
		if t.Failed() {
			return // what was not granted is not held
		}
		for i, key := range keys {
			if ok, err := s.ExpireIf(t.Context(), key, token, 20*time.Minute); err != nil || !ok {
				t.Errorf("round %d: ExpireIf(%s) = %v, %v: a sweep has removed a lock that is held", round, key, ok, err)
			}
			if ok, err := s.Renew(t.Context(), "shared "+key, token, 20*time.Minute); err != nil || !ok {
				t.Errorf("round %d: Renew(%s) = %v, %v: a sweep has removed a permit that is held", round, key, ok, err)
			}
			if numbers[i] <= last[key] {
				t.Errorf("round %d: the number of %s is %d after %d", round, key, numbers[i], last[key])
			}
			last[key] = numbers[i]
		}
		if t.Failed() {
			return
		}
	}
}

// A line is two waiters for one key.
type line struct {
	t       testing.TB
	s       *sqlstore.PostgreSQL
	key     string
	waiters [2]struct {
		heard  chan struct{}
		answer backends.Result
	}
	leave context.CancelFunc
}

func newLine(t testing.TB, s *sqlstore.PostgreSQL, key string) *line {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	l := &line{t: t, s: s, key: key, leave: leave}
	for i := range l.waiters {
		heard := make(chan struct{}, 1)
		l.waiters[i].heard = heard
		err := s.WatchQueued(ctx, key, fmt.Sprint("waiter ", i), func() {
			select {
			case heard <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func (l *line) asks(i int) {
	r, err := l.s.SetNXQueued(l.t.Context(), l.key, fmt.Sprint("token ", i), 10*time.Minute, backends.Turn{Waiter: fmt.Sprint("waiter ", i), InOrder: true})
	if err != nil {
		l.t.Errorf("SetNXQueued = %+v, %v", r, err)
	}
	l.waiters[i].answer = r
}

// served wants one of the two to have the key, and the other to be the head of the queue, which
// hears of the release.
func (l *line) served() {
	l.t.Helper()
	defer l.leave()
	first, next := 0, 1
	if l.waiters[1].answer.OK {
		first, next = 1, 0
	}
	if f, n := l.waiters[first].answer, l.waiters[next].answer; !f.OK || n.OK || n.Position != 1 {
		l.t.Errorf("two wait for %s: %+v, %+v; want that one has it, and the other is the head", l.key, f, n)
		return
	}
	for len(l.waiters[next].heard) > 0 { // the connection that listens is there
		<-l.waiters[next].heard
	}
	if ok, err := l.s.DeleteIf(l.t.Context(), l.key, fmt.Sprint("token ", first)); err != nil || !ok {
		l.t.Errorf("DeleteIf(%s) = %v, %v: a sweep has removed a lock that is held", l.key, ok, err)
	}
	select {
	case <-l.waiters[next].heard:
	case <-l.t.Context().Done():
	case <-time.After(patience):
		l.t.Errorf("the head of the queue of %s hears nothing of the release", l.key)
	}
	if l.asks(next); !l.waiters[next].answer.OK {
		l.t.Errorf("the head of the queue of %s gets %+v after the release", l.key, l.waiters[next].answer)
	}
	if ok, err := l.s.DeleteIf(l.t.Context(), l.key, fmt.Sprint("token ", next)); err != nil || !ok {
		l.t.Errorf("DeleteIf(%s) = %v, %v", l.key, ok, err)
	}
}

// All that is due is live but for the oldest of each kind. A sweep looks at all, and removes those.
func TestASweepLeavesWhatIsNeeded(t *testing.T) {
	leavesWhatIsNeeded(t, install(t, pgtest.Start(t, "fsync=off").DSN()))
}

func leavesWhatIsNeeded(t testing.TB, pool *pgxpool.Pool) {
	o, s, grant := outside{t, pool}, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), granted(t)
	grant(s.SetNX(t.Context(), "held", "token", maxTTL))
	grant(s.SetNXNumbered(t.Context(), "numbered", "token", maxTTL, backends.Turn{}))
	if ok, err := s.DeleteIf(t.Context(), "numbered", "token"); err != nil || !ok {
		t.Fatal(ok, err)
	}
	grant(s.SetNX(t.Context(), "foreign", "token", maxTTL))
	grant(s.Enter(t.Context(), "permits", "token", maxTTL, backends.Admission{}))
	insert := `INSERT INTO lockstep.waiter (key, waiter, channel, holds, most, seen) VALUES ($1, $2, 'nobody', '', 0, clock_timestamp() - $3::text::interval)`
	o.exec(insert, []byte("free"), "alive", "5 minutes")
	o.exec(insert, []byte("held"), "dead", "11 minutes")
	o.exec(`INSERT INTO lockstep.lock (key, expires) VALUES ('free', '-infinity'), ('gone', '-infinity'), ('young', clock_timestamp() - interval '50 minutes')`)
	o.exec(`INSERT INTO lockstep.hold VALUES ('gone', 'token', '-infinity')`)
	o.exec(`INSERT INTO lockstep.watcher VALUES ('gone', 'nobody'), ('held', 'somebody')`)
	o.exec(`INSERT INTO lockstep.number VALUES ('gone', 1, clock_timestamp() - interval '1 second')`)
	o.exec(`UPDATE lockstep.lock SET look = '-infinity', expires = CASE WHEN key = 'foreign' THEN 'infinity' ELSE expires END; UPDATE lockstep.number SET look = '-infinity'`)
	o.exec("INSERT INTO lockstep.lock (key) VALUES ('new')") // not due yet
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]string{
		"lock": "foreign free held new numbered permits young", "number": "numbered", "hold": "permits", "waiter": "free", "watcher": "held",
	} {
		var got string
		err := pool.QueryRow(t.Context(), "SELECT coalesce(string_agg(convert_from(key, 'UTF8'), ' ' ORDER BY key), '') FROM lockstep."+table).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%s has the keys %q, %v; want %q", table, got, err, want)
		}
	}
	var due, never int
	err := pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE look < clock_timestamp()), count(*) FILTER (WHERE look > clock_timestamp() + interval '26 hours')
		FROM (SELECT look FROM lockstep.lock UNION ALL SELECT look FROM lockstep.number) AS looks`).Scan(&due, &never)
	if err != nil || due != 0 || never != 0 {
		t.Errorf("%d rows are due still, and %d are not looked at for more than a day, %v", due, never, err)
	}
}

// A table that an older program has filled goes in steps, and a call that adds a row pays for a few.
func TestSweepGoesOnWhileThereAreRowsToRemove(t *testing.T) {
	goesOnWhileThereAreRows(t, install(t, pgtest.Start(t, "fsync=off").DSN()))
}

func goesOnWhileThereAreRows(t testing.TB, pool *pgxpool.Pool) {
	o, s, grant := outside{t, pool}, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), granted(t)
	for i := range 250 {
		grant(s.SetNX(t.Context(), fmt.Sprint(i), "token", time.Minute))
	}
	o.backdate(3 * time.Hour)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), "SELECT FROM lockstep.lock WHERE key = '7' FOR UPDATE"); err != nil { // nobody waits for it
		t.Fatal(err)
	}
	grant(s.SetNX(t.Context(), "held", "token", time.Minute))
	want := 250 + 1 - 4
	if n := o.rows(); n != want {
		t.Errorf("after one call that adds a row there are %d rows; want 4 of 250 to be gone", n)
	}
	grant(s.Enter(t.Context(), "permits", "token", time.Minute, backends.Admission{}))
	o.exec("SELECT lockstep.watch('watched', 'nobody')")
	o.exec("SELECT lockstep.quit('left', 'nobody', 200000)")
	if n := o.rows(); n != want+2+2+1-3*4 {
		t.Errorf("after three more there are %d rows; want 4 of the others to be gone for each", n)
	}
	grant(s.SetNX(t.Context(), "held", "token", time.Minute))
	grant(s.Enter(t.Context(), "permits", "token", time.Minute, backends.Admission{}))
	if n := o.rows(); n != want+2+2+1-3*4 {
		t.Errorf("after calls that add no row there are %d rows; want none of them to be gone", n)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	const left = 1 + 1 + 2 + 2 + 1
	if n := o.rows(); n != left {
		t.Errorf("%d rows are left; want those of the four keys, and the one that is locked", n)
	}
	o.exec("INSERT INTO lockstep.number SELECT convert_to(i::text, 'UTF8'), 1, '-infinity', '-infinity' FROM generate_series(1, 250) AS i")
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := o.rows(); n != left {
		t.Errorf("with 250 numbers whose time is over, %d rows are left; want %d", n, left)
	}
}

// older is a server with the tables and functions of commit f3fa788, which had no version.
func older(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := dial(t, pgtest.Start(t, "fsync=off").DSN())
	outside{t, pool}.exec(version1(t))
	return pool
}

func version1(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../sqlstore/testdata/version1.postgresql.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// 50 clients lock with the functions of version 1, and Install changes them meanwhile.
func TestAnOlderInstallationIsUpgradedWhileLocksAreHeld(t *testing.T) {
	pool := older(t)
	if r, err := pgxstore.New(pool, pgxstore.WithoutWakes()).Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) == nil {
		t.Errorf("Check of the older installation = %v, %v; want it found", r, err)
	}
	s, grant := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), granted(t)
	grant(s.SetNX(t.Context(), "held", "token", maxTTL))
	grant(s.Enter(t.Context(), "permits", "token", maxTTL, backends.Admission{Limit: 1}))
	if n := grant(s.SetNXFenced(t.Context(), "counted", "token", maxTTL)); n != 1 {
		t.Fatal(n)
	}
	stop, errs := make(chan struct{}), make(chan error, 50)
	for i := range 50 {
		go func() {
			errs <- func() error {
				last := uint64(0)
				for round := 0; ; round++ {
					key, token := fmt.Sprint("key ", i), fmt.Sprint("token ", round)
					r, err := s.SetNXNumbered(t.Context(), key, token, maxTTL, backends.Turn{})
					if err != nil || !r.OK || r.Fence <= last {
						return fmt.Errorf("SetNXNumbered = %+v, %w", r, err)
					}
					last = r.Fence
					if r, err := s.Enter(t.Context(), "shared "+key, token, maxTTL, backends.Admission{Limit: 1}); err != nil || !r.OK {
						return fmt.Errorf("Enter = %+v, %w", r, err)
					}
					if ok, err := s.Leave(t.Context(), "shared "+key, token); err != nil || !ok {
						return fmt.Errorf("Leave = %v, %w", ok, err)
					}
					if ok, err := s.DeleteIf(t.Context(), key, token); err != nil || !ok {
						return fmt.Errorf("DeleteIf = %v, %w", ok, err)
					}
					select {
					case <-stop:
						return nil
					default:
					}
				}
			}()
		}()
	}
	for range 3 {
		if err := pgxstore.Install(trial.Patient(t), pool); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if ok, err := s.ExpireIf(t.Context(), "held", "token", maxTTL); err != nil || !ok {
		t.Errorf("ExpireIf = %v, %v; want the lock to be held still", ok, err)
	}
	if ok, err := s.Renew(t.Context(), "permits", "token", maxTTL); err != nil || !ok {
		t.Errorf("Renew = %v, %v; want the permit to be held still", ok, err)
	}
	if ok, err := s.DeleteIf(t.Context(), "counted", "token"); err != nil || !ok {
		t.Error(ok, err)
	}
	if n := grant(s.SetNXFenced(t.Context(), "counted", "token", maxTTL)); n != 2 {
		t.Errorf("the number is %d; want 2", n)
	}
	if r, err := s.Check(trial.Patient(t)); err != nil || r.Err(sqlstore.ProblemPersistence) != nil {
		t.Errorf("Check after Install = %v, %v", r, err)
	}
	outside{t, pool}.exec("SELECT lockstep.sweep()") // what a program of version 1 calls
}

func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	return tx
}

// A newer program has installed version 4, and a function that version 3 has not. Also if both
// install at once.
func TestInstallReplacesNothingOfANewerVersion(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off", "default_transaction_isolation=serializable").DSN())
	tx := begin(t, pool)
	if _, err := tx.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("VALUES (3)", "VALUES (4)", "> 3 THEN", "> 4 THEN", "FUNCTION lockstep.print(token bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$",
		"FUNCTION lockstep.print(token bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'newer' UNION ALL ").Replace(sqlstore.PostgreSQLSchema())
	if _, err := tx.Exec(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 4)
	for range cap(errs) {
		go func() { errs <- pgxstore.Install(trial.Patient(t), pool) }()
	}
	waiting := func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&n)
		return err == nil && n == cap(errs)
	}
	eventually(t, "all wait for the newer program", waiting)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range cap(errs) {
		var told *sqlstore.StatementError
		if err := <-errs; !errors.As(err, &told) || !told.Permanent() || !strings.Contains(err.Error(), "version 4, from a newer program") {
			t.Errorf("Install over a newer version = %v; want a permanent error that says so", err)
		}
	}
	var newer string
	if err := pool.QueryRow(t.Context(), "SELECT lockstep.print('token')").Scan(&newer); err != nil || newer != "newer" {
		t.Errorf("the function of the newer version gives %q, %v", newer, err)
	}
	r, err := pgxstore.New(pool).Check(trial.Patient(t))
	if err != nil || len(r.Findings) == 0 || r.Findings[0].Problem != sqlstore.ProblemInstall || r.Findings[0].Unsafe || !strings.Contains(r.Findings[0].Detail, "version 4") {
		t.Errorf("Check = %v, %v; want the newer version first, which is not unsafe", r, err)
	}
}

// Programs wait for one key, and crash. Nobody takes another key, so each waiter pays for those before it.
func TestWaitersThatCrashLeaveFewRows(t *testing.T) {
	waitersLeaveFewRows(t, install(t, pgtest.Start(t, "fsync=off").DSN()))
}

func waitersLeaveFewRows(t testing.TB, pool *pgxpool.Pool) {
	o, s, grant := outside{t, pool}, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), granted(t)
	for key, statement := range map[string]string{
		"held":    "SELECT lockstep.take('held', 'other', 1000000, 0, $1, 'nobody', true, 200000)",
		"permits": "SELECT lockstep.enter('permits', 'other', 1000000, '', 1, false, false, $1, 'nobody', true, 200000)",
	} {
		o.exec("DELETE FROM lockstep.lock; DELETE FROM lockstep.hold; DELETE FROM lockstep.waiter")
		grant(s.SetNX(t.Context(), "held", "token", maxTTL))
		grant(s.Enter(t.Context(), "permits", "token", maxTTL, backends.Admission{Limit: 1}))
		for i := range 50 {
			o.exec(statement, fmt.Sprint("waiter ", i))
			o.backdate(time.Minute)
		}
		var n int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM lockstep.waiter").Scan(&n); err != nil || n < 9 || n > 12 {
			t.Errorf("%d waiters for %s are left, %v; want those of the last ten minutes", n, key, err)
		}
	}
}

// A call that is under way has locked the rows of its key, whose time is over. The sweep leaves
// them alone, and does not wait.
func TestASweepLeavesTheKeysOfCallsThatAreUnderWay(t *testing.T) {
	leavesCallsUnderWay(t, install(t, pgtest.Start(t, "fsync=off").DSN()))
}

func leavesCallsUnderWay(t testing.TB, pool *pgxpool.Pool) {
	o, s := outside{t, pool}, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	first := granted(t)(s.SetNXNumbered(t.Context(), "k", "token", time.Minute, backends.Turn{}))
	o.exec("UPDATE lockstep.lock SET expires = '-infinity', look = '-infinity'; UPDATE lockstep.number SET kept = '-infinity', look = '-infinity'")
	o.exec("INSERT INTO lockstep.waiter (key, waiter, channel, holds, most, seen) VALUES ('k', 'waiter', 'nobody', '', 0, '-infinity')")
	tx := begin(t, pool)
	var number uint64
	if err := tx.QueryRow(t.Context(), "SELECT number FROM lockstep.take('k', 'other', 60000000, 2, 'waiter', '', false, 200000)").Scan(&number); err != nil || number <= first {
		t.Fatal(number, err)
	}
	swept := make(chan error, 1)
	go func() { swept <- s.Sweep(t.Context()) }()
	select {
	case err := <-swept:
		if err != nil {
			t.Error(err)
		}
	case <-t.Context().Done():
		t.Error("the sweep waits for the call")
	case <-time.After(patience):
		t.Error("the sweep waits for the call")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if state, err := s.Inspect(trial.Patient(t), "k"); err != nil || state.Holding != 1 || state.Fence != number {
		t.Errorf("Inspect = %+v, %v; want it held with the number %d", state, err, number)
	}
}

// The numbers of eight keys are due for a sweep. Two calls take two of these keys at once. Neither key
// has a row, so each call adds one, and pays for a sweep of four numbers. The number of the other key
// is one of the four. The first call waits for a row of its own key until the second has swept. If a
// call swept before that, each would hold what the other needs. The server would end this after a
// second, and the store would repeat the call: so here the server never ends it.
func TestCallsThatPayForASweepDoNotWaitForEachOther(t *testing.T) {
	payersDoNotWait(t, install(t, pgtest.Start(t, "fsync=off", noDeadlockEnds).DSN()))
}

const noDeadlockEnds = "deadlock_timeout=1h"

func payersDoNotWait(t testing.TB, pool *pgxpool.Pool) {
	o := outside{t, pool}
	for name, statement := range map[string]string{
		"take":  "SELECT outcome FROM lockstep.take($1, 'token', 60000000, 2, 'waiter', 'nobody', false, 200000)",
		"enter": "SELECT outcome FROM lockstep.enter($1, 'token', 60000000, '', 0, true, false, 'waiter', 'nobody', false, 200000)",
	} {
		o.exec("DELETE FROM lockstep.lock; DELETE FROM lockstep.hold; DELETE FROM lockstep.waiter; DELETE FROM lockstep.number")
		o.exec(`INSERT INTO lockstep.number SELECT convert_to(chr(96 + i), 'UTF8'), 1, clock_timestamp() + interval '1 hour', '2000-01-01'::timestamptz + i * interval '1 day'
			FROM generate_series(1, 8) AS i`)
		o.exec("INSERT INTO lockstep.waiter (key, waiter, channel, holds, most, seen, reserved) VALUES ('e', 'waiter', 'nobody', '', 0, clock_timestamp(), '-infinity')")
		tx := begin(t, pool)
		if _, err := tx.Exec(t.Context(), "SELECT FROM lockstep.waiter WHERE key = 'e' FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		takes := func(key string) {
			var outcome int
			err := pool.QueryRow(t.Context(), statement, []byte(key)).Scan(&outcome)
			if err == nil && outcome != 1 {
				err = fmt.Errorf("outcome %d", outcome)
			}
			ended <- err
		}
		wait := func(n int) {
			eventually(t, fmt.Sprint(n, " calls wait for a row, or have ended"), func() bool {
				var waiting int
				err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&waiting)
				return err == nil && waiting+len(ended) == n
			})
		}
		go takes("e")
		wait(1)
		go takes("a")
		wait(2)
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("%s while another key is taken: %v; want it granted", name, err)
				}
			case <-t.Context().Done():
				t.Fatalf("%s has not ended", name)
			case <-time.After(patience):
				t.Fatalf("%s waits for another key, and that for this one", name)
			}
		}
	}
}
