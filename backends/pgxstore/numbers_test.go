package pgxstore_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/pgxstore"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

func TestNumbersAreKeptForADayAndThoseByCountForEver(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	o, s, grant := outside{t, pool}, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), granted(t)
	release := func(key string) {
		t.Helper()
		if ok, err := s.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	n := grant(s.SetNXNumbered(t.Context(), "k", "token", time.Minute, backends.Turn{}))
	release("k")
	for _, c := range []struct {
		later time.Duration
		want  uint64
	}{{23 * time.Hour, n}, {2 * time.Hour, 0}} {
		o.backdate(c.later)
		if state, err := s.Inspect(trial.Patient(t), "k"); err != nil || state.Fence != c.want {
			t.Errorf("%v later the last number is %d, %v; want %d", c.later, state.Fence, err, c.want)
		}
	}
	if first := grant(s.SetNXFenced(t.Context(), "both", "token", time.Minute)); first != 1 {
		t.Errorf("the first number by count is %d", first)
	}
	release("both")
	byClock := grant(s.SetNXNumbered(t.Context(), "both", "token", time.Minute, backends.Turn{}))
	release("both")
	o.backdate(25 * time.Hour)
	if again := grant(s.SetNXFenced(t.Context(), "both", "token", time.Minute)); again != byClock+1 {
		t.Errorf("the number by count is %d a day after %d by clock; want the next one: it is kept for ever", again, byClock)
	}
}

// A release that is under way does not see the watcher. So the watcher waits for its end, and then
// finds the key free.
func TestWatchDoesNotCrossARelease(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	granted(t)(pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)).SetNX(t.Context(), "k", "token", time.Minute))
	duringARelease(t, pool, "SELECT lockstep.watch('k', 'store')")
}

// A release that is under way reserves the key for the waiter. So the waiter that leaves waits for its end, and
// then gives the reservation up.
func TestAWaiterThatLeavesDoesNotCrossARelease(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	s := pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL))
	granted(t)(s.SetNX(t.Context(), "k", "token", time.Minute))
	outside{t, pool}.exec("SELECT lockstep.take('k', 'waits', 60000000, 0, 'ann', 'nobody', true, 60000000)")
	duringARelease(t, pool, "SELECT lockstep.quit('k', 'ann', 200000)")
	if state, err := s.Inspect(trial.Patient(t), "k"); err != nil || state.Reserved != 0 || state.Waiting != 0 {
		t.Errorf("Inspect = %+v, %v; want nobody that waits, and no reservation", state, err)
	}
}

// duringARelease runs a statement while the release of a key is under way. It must wait for its end.
func duringARelease(t *testing.T, pool *pgxpool.Pool, statement string) {
	t.Helper()
	tx := begin(t, pool)
	var outcome int
	if err := tx.QueryRow(t.Context(), "SELECT lockstep.release('k', 'token', 200000)").Scan(&outcome); err != nil || outcome != 1 {
		t.Fatal(outcome, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := pool.Exec(t.Context(), statement)
		ended <- err
	}()
	eventually(t, "the statement waits for the release", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("%s has returned before the end of the release, %v", statement, err)
		default:
		}
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = $1", statement).Scan(&n)
		return err == nil && n == 1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Three holds of a limit of three have ended. The one that comes next has room for itself, and for
// two that wait.
func TestAGrantThatFindsEndedHoldsAdmitsWaiters(t *testing.T) {
	pool := install(t, pgtest.Start(t, "fsync=off").DSN())
	o, s, grant := outside{t, pool}, pgxstore.New(pool, pgxstore.WithMaxTTL(maxTTL)), granted(t)
	for _, token := range []string{"one", "two", "three"} {
		grant(s.Enter(t.Context(), "k", token, time.Minute, backends.Admission{Limit: 3}))
	}
	for _, waiter := range []string{"ann", "bob", "col"} {
		o.exec("SELECT lockstep.enter('k', $1::text::bytea, 60000000, '', 3, false, false, $1, 'nobody', true, 60000000)", waiter)
	}
	o.exec("UPDATE lockstep.hold SET expires = clock_timestamp() - interval '1 second'") // nobody is told of an end
	grant(s.Enter(t.Context(), "k", "late", time.Minute, backends.Admission{Limit: 3}))
	if state, err := s.Inspect(trial.Patient(t), "k"); err != nil || state.Holding != 1 || state.Reserved != 2 || state.Waiting != 1 {
		t.Errorf("Inspect = %+v, %v; want one hold, two reservations, and one that waits", state, err)
	}
}
