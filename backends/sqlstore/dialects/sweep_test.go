package dialects_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// sweeper is a store with the method for a program that has time.
type sweeper interface {
	store
	Sweep(ctx context.Context) error
}

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
	const past = "CASE WHEN %[1]s > 0 AND %[1]s < 9223372036854775807 THEN %[1]s - %[2]d ELSE %[1]s END"
	var sets []string
	for _, column := range []string{"expires", "kept", "look"} {
		sets = append(sets, column+" = "+fmt.Sprintf(past, column, d.Microseconds()))
	}
	o.exec("UPDATE lockstep_lock SET " + strings.Join(sets, ", "))
}

// A program comes each minute, takes a key of its own, and ends. Every other one crashes. It has no time to
// sweep later, and no other program sweeps. A week has 10,080 minutes: all of them with LOCKSTEP_TORTURE=1.
// 400 show the same, since a row is to live for an hour.
func TestAWeekOfProgramsThatLiveForASecondLeavesFewRows(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		o, first := outside{t, db}, db.store()
		grant := func(r backends.Result, err error) {
			t.Helper()
			if err != nil || !r.OK {
				t.Fatal(r, err)
			}
		}
		grant(first.SetNX(t.Context(), "held", "token", maxTTL))
		grant(first.Enter(t.Context(), "permits", "token", maxTTL, backends.Admission{Limit: 2}))
		grant(first.SetNXFenced(t.Context(), "counted", "token", time.Minute))
		minutes := scale(400, 10_080)
		for i := range minutes {
			s, key := db.store(), fmt.Sprintf("job %05d", i*7919%minutes)
			grant(s.SetNX(t.Context(), key, "token", 30*time.Second))
			if i%2 == 0 {
				if ok, err := s.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
					t.Fatal(ok, err)
				}
			}
			o.backdate(time.Minute)
			if i%20 == 0 { // a number that is in use
				grant(s.SetNXNumbered(t.Context(), "numbered", fmt.Sprint("token ", i), time.Minute, backends.Turn{}))
				for key, renew := range map[string]func(context.Context, string, string, time.Duration) (bool, error){"held": s.ExpireIf, "permits": s.Renew} {
					if ok, err := renew(t.Context(), key, "token", maxTTL); err != nil || !ok {
						t.Fatalf("in minute %d %s was not held any more: %v", i, key, err)
					}
				}
			}
		}
		if n := rowsOf(t, db); n > 200 || n < 60 {
			t.Errorf("%d rows are left after %d minutes; want those of the last hour, and at most 200", n, minutes)
		}
		if r, err := first.SetNXFenced(t.Context(), "counted", "token", time.Minute); err != nil || r.Fence != 2 {
			t.Errorf("SetNXFenced = %+v, %v; want the number 2", r, err)
		}
	})
}

// A table of an older program, or one that many programs have filled at once.
func TestSweepGoesOnWhileThereAreRowsToRemove(t *testing.T) {
	both(t, func(t *testing.T, d dialect) { goesOnWhileThereAreRows(t, d.fresh(t)) })
}

func goesOnWhileThereAreRows(t testing.TB, db database) {
	s := db.store().(sweeper)
	for i := range 250 {
		if r, err := s.SetNX(t.Context(), fmt.Sprint(i), "token", time.Minute); err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	outside{t, db}.backdate(3 * time.Hour)
	if r, err := s.SetNX(t.Context(), "held", "token", time.Minute); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	if n := rowsOf(t, db); n != 250+1-4 {
		t.Errorf("after one call that adds a row there are %d rows; want 4 of 250 to be gone", n)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := rowsOf(t, db); n != 1 {
		t.Errorf("%d rows are left; want the one that is held", n)
	}
}

// Sweeps find keys that have been free for hours, just when somebody takes them.
func TestASweepRemovesNoKeyThatIsTakenMeanwhile(t *testing.T) {
	both(t, func(t *testing.T, d dialect) { removesNoKeyThatIsTaken(t, d.fresh(t), scale(60, 1000)) })
}

func removesNoKeyThatIsTaken(t testing.TB, db database, rounds int) {
	s, o := db.store().(sweeper), outside{t, db}
	keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	last := map[string]uint64{}
	for round := range rounds {
		o.exec("UPDATE lockstep_lock SET expires = 1, look = 1, kept = CASE WHEN `key` < ? THEN 1 ELSE kept END", []byte("d"))
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
		numbers := make([]uint64, len(keys))
		for i, key := range keys {
			all.Go(func() {
				<-start
				r, err := s.SetNXNumbered(t.Context(), key, fmt.Sprint("token ", round), 10*time.Minute, backends.Turn{})
				if err != nil || !r.OK {
					t.Errorf("SetNXNumbered = %+v, %v", r, err)
				}
				numbers[i] = r.Fence
			})
		}
		close(start)
		all.Wait()
		for i, key := range keys {
			if ok, err := s.ExpireIf(t.Context(), key, fmt.Sprint("token ", round), 20*time.Minute); err != nil || !ok {
				t.Errorf("round %d: ExpireIf(%s) = %v, %v: a sweep has removed a lock that is held", round, key, ok, err)
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

// All that is due is needed, but for one row. A sweep looks at all, and removes that.
func TestASweepLeavesWhatIsNeeded(t *testing.T) {
	both(t, func(t *testing.T, d dialect) { leavesWhatIsNeeded(t, d.fresh(t)) })
}

func leavesWhatIsNeeded(t testing.TB, db database) {
	s, o := db.store().(sweeper), outside{t, db}
	grant := func(r backends.Result, err error) {
		t.Helper()
		if err != nil || !r.OK {
			t.Fatal(r, err)
		}
	}
	grant(s.SetNXNumbered(t.Context(), "numbered", "token", time.Minute, backends.Turn{}))
	grant(s.SetNXFenced(t.Context(), "counted", "token", time.Minute))
	grant(s.SetNX(t.Context(), "gone", "token", time.Minute))
	o.backdate(2 * time.Hour)
	grant(s.SetNX(t.Context(), "young", "token", time.Minute))
	o.backdate(30 * time.Minute)
	grant(s.SetNX(t.Context(), "held", "token", maxTTL))
	grant(s.Enter(t.Context(), "permits", "token", maxTTL, backends.Admission{}))
	o.SetForeign("foreign")
	o.exec("UPDATE lockstep_lock SET look = 1")
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := db.QueryContext(t.Context(), "SELECT `key`, look < "+db.dialect.now+" FROM lockstep_lock ORDER BY `key`")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = found.Close() }()
	var keys []string
	for found.Next() {
		var key string
		var due bool
		if err := found.Scan(&key, &due); err != nil {
			t.Fatal(err)
		}
		if keys = append(keys, key); due {
			t.Errorf("%s is due still", key)
		}
	}
	if got, want := strings.Join(keys, " "), "counted foreign held numbered permits young"; found.Err() != nil || got != want {
		t.Errorf("the keys %q are left, %v; want %q", got, found.Err(), want)
	}
}

// A transaction that guards a lock may be long. A call that adds a row does not wait for it.
func TestASweepDoesNotWaitForATransaction(t *testing.T) { doesNotWait(t, mariadb.fresh(t)) }

func doesNotWait(t testing.TB, db database) {
	s := db.store().(sweeper)
	if r, err := s.SetNX(t.Context(), "k", "token", time.Minute); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	outside{t, db}.exec("UPDATE lockstep_lock SET look = 1")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := s.Guard(t.Context(), sqlstore.InTx(tx), lease("k", "token")); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil { // after 50 s: lock wait timeout exceeded
		t.Errorf("Sweep = %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	var due int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM lockstep_lock WHERE look = 1").Scan(&due); err != nil || due != 0 {
		t.Errorf("%d rows were not looked at, %v", due, err)
	}
}

// The tables of commit f3fa788, which had no version.
func older(t *testing.T, d dialect) database {
	t.Helper()
	text, err := os.ReadFile("../testdata/version1." + map[string]string{"sqlite": "sqlite", "mysql": "mysql"}[d.driver] + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	db := d.dial(t, d.dsn(t))
	if d.driver == "sqlite" {
		outside{t, db}.exec("PRAGMA journal_mode = WAL")
	}
	outside{t, db}.exec(string(text))
	return db
}

func TestCheckFindsWhatIsMissing(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		for name, c := range map[string]struct{ change, want string }{
			"an older table":     {"", "lockstep_lock.look is missing"},
			"no table":           {"DROP TABLE lockstep_lock", "missing"},
			"a column":           {"ALTER TABLE lockstep_lock RENAME COLUMN kept TO gone", "lockstep_lock.kept is missing"},
			"an index":           {map[string]string{"sqlite": "DROP INDEX lockstep_look", "mysql": "DROP INDEX lockstep_look ON lockstep_lock"}[d.driver], "lockstep_lock (look) is missing"},
			"a newer version":    {map[string]string{"sqlite": "UPDATE lockstep_version SET number = 3", "mysql": "ALTER TABLE lockstep_lock COMMENT = 'lockstep 3'"}[d.driver], "version 3"},
			"a column's type":    {map[string]string{"mysql": "ALTER TABLE lockstep_lock MODIFY last INT NOT NULL"}[d.driver], "lockstep_lock.last is another one"},
			"no version at all":  {map[string]string{"sqlite": "DROP TABLE lockstep_version"}[d.driver], "lockstep_version is missing"},
			"nothing is missing": {"SELECT 1", ""},
		} {
			if c.change == "" && name != "an older table" {
				continue // the other dialect has it
			}
			if d.name == mariadb.name && !full.Size() && name != "an older table" && name != "a newer version" && name != "an index" && name != "a column's type" {
				continue // a server each: these are the same code
			}
			t.Run(name, func(t *testing.T) {
				var db database
				if name == "an older table" {
					db = older(t, d)
				} else {
					db = d.fresh(t)
					outside{t, db}.exec(c.change)
				}
				r := check(t, db)
				var found []string
				for _, f := range r.Findings {
					if f.Problem == sqlstore.ProblemInstall {
						found = append(found, f.Detail)
						if f.Unsafe == (name == "a newer version") {
							t.Errorf("unsafe is %v: %v", f.Unsafe, r)
						}
					}
				}
				if (c.want == "") != (len(found) == 0) || len(found) > 1 || len(found) == 1 && !strings.Contains(found[0], c.want) {
					t.Errorf("Check found %q; want %q", found, c.want)
				}
				err := d.install(t.Context(), db.DB)
				if name == "a newer version" {
					if err == nil || !strings.Contains(err.Error(), "version 3") || check(t, db).Err(sqlstore.ProblemPersistence) != nil {
						t.Errorf("Install over a newer version = %v; want it refused, and nothing changed", err)
					}
				} else if name != "a column" && name != "a column's type" {
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range check(t, db).Findings {
						if f.Problem == sqlstore.ProblemInstall {
							t.Errorf("after Install: %v", f)
						}
					}
				}
			})
		}
	})
}

// Programs lock with the table of version 1, and Install changes it meanwhile. What is held stays, and
// numbers rise. The statements of version 1 work with the table of version 2.
func TestAnOlderTableIsUpgradedWhileLocksAreHeld(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := older(t, d)
		o := outside{t, db}
		old := "INSERT INTO lockstep_lock (`key`, kind, value, expires, holds, last, kept) VALUES (?, 1, ?, " + d.now + " + 3000000000, ?, ?, " + d.now + " + 86400000000)"
		const number = 5_000_000_000_000_000
		o.exec(old, []byte("held"), []byte("token"), []byte{}, int64(number))
		s := db.store()
		for i := range 50 {
			o.exec(old, fmt.Append(nil, i), []byte("token"), []byte{}, int64(number))
		}
		stop, errs := make(chan struct{}), make(chan error, 50)
		for i := range 50 {
			go func() {
				errs <- func() error {
					for key := fmt.Sprint(i); ; {
						if ok, err := s.ExpireIf(t.Context(), key, "token", maxTTL); err != nil || !ok {
							return fmt.Errorf("ExpireIf = %v, %w", ok, err)
						}
						if ok, err := s.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
							return fmt.Errorf("DeleteIf = %v, %w", ok, err)
						}
						if r, err := s.SetNXNumbered(t.Context(), key, "token", maxTTL, backends.Turn{}); err != nil || !r.OK || r.Fence <= number {
							return fmt.Errorf("SetNXNumbered = %+v, %w", r, err)
						}
						select {
						case <-stop:
							return nil
						case <-time.After(10 * time.Millisecond):
						}
					}
				}()
			}()
		}
		time.Sleep(100 * time.Millisecond) // so that they are under way; nothing depends on it
		if err := d.install(t.Context(), db.DB); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
		close(stop)
		for range 50 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if ok, err := s.ExpireIf(t.Context(), "held", "token", maxTTL); err != nil || !ok {
			t.Errorf("ExpireIf = %v, %v; want the lock to be held still", ok, err)
		}
		o.exec(old, []byte("by the old statement"), []byte("token"), []byte{}, int64(number))
		if r, err := s.SetNX(t.Context(), "by the new one", "token", time.Minute); err != nil || !r.OK {
			t.Error(r, err)
		}
		if err := s.(sweeper).Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if n := rowsOf(t, db); n != 53 {
			t.Errorf("%d rows; want 53", n)
		}
	})
}

func TestNumbersAreKeptForADayAndThoseByCountForEver(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		s, o := db.store(), outside{t, db}
		take := func(key string, by func() (backends.Result, error)) uint64 {
			t.Helper()
			r, err := by()
			if err != nil || !r.OK {
				t.Fatal(r, err)
			}
			if ok, err := s.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
				t.Fatal(ok, err)
			}
			return r.Fence
		}
		clock := func(key string) uint64 {
			return take(key, func() (backends.Result, error) {
				return s.SetNXNumbered(t.Context(), key, "token", time.Minute, backends.Turn{})
			})
		}
		count := func(key string) uint64 {
			return take(key, func() (backends.Result, error) { return s.SetNXFenced(t.Context(), key, "token", time.Minute) })
		}
		n := clock("k")
		for _, c := range []struct {
			later time.Duration
			want  uint64
		}{{23 * time.Hour, n}, {2 * time.Hour, 0}} {
			o.backdate(c.later)
			if state, err := s.Inspect(trial.Patient(t), "k"); err != nil || state.Fence != c.want {
				t.Errorf("%v later the last number is %d, %v; want %d", c.later, state.Fence, err, c.want)
			}
		}
		if first := count("both"); first != 1 {
			t.Errorf("the first number by count is %d", first)
		}
		byClock := clock("both")
		o.backdate(25 * time.Hour)
		if again := count("both"); again != byClock+1 {
			t.Errorf("the number by count is %d a day after %d by clock; want the next one: it is kept for ever", again, byClock)
		}
	})
}
