package dialects_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/trial"
)

// mutating is the way to a database on which one statement of the store has another text.
type mutating struct {
	driver       driver.Driver
	dsn, was, is string
	sent         *atomic.Int64 // how often
}

func (m mutating) Driver() driver.Driver { return m.driver }

func (m mutating) Connect(context.Context) (driver.Conn, error) {
	c, err := m.driver.Open(m.dsn)
	return mutatingConn{c, m}, err
}

type mutatingConn struct {
	driver.Conn
	m mutating
}

func (c mutatingConn) PrepareContext(ctx context.Context, statement string) (driver.Stmt, error) {
	if c.m.was != "" && strings.Contains(statement, c.m.was) {
		c.m.sent.Add(1)
		statement = strings.ReplaceAll(statement, c.m.was, c.m.is)
	}
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, statement)
}

func (c mutatingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func someRounds(t testing.TB, db database) { removesNoKeyThatIsTaken(t, db, 10) }

// The bodies of the tests of sweeps find each change of their statements. A mutant whose text is
// not sent is an error: then it is to be adapted, so that it plants the same fault.
func TestMutantsOfTheSweepAreFound(t *testing.T) {
	type body = func(t testing.TB, db database)
	type mutant struct {
		was, is string
		by      body
	}
	mutants := map[string][]mutant{
		sqlite.name: {
			{"max(expires, kept) < ", "expires < ", leavesWhatIsNeeded},
			{"max(expires, kept) < ", "kept < ", leavesWhatIsNeeded},
			{" AND max(expires, kept) < unixepoch() * 1000000 - 3600000000", "", someRounds},
			{"unixepoch() * 1000000 - 3600000000", "unixepoch() * 1000000", leavesWhatIsNeeded},
			{"unixepoch() * 1000000 - 3600000000", "unixepoch() * 1000000 - 11000000000", goesOnWhileThereAreRows},
			{"SET look = min(max(expires, kept),", "SET look = min(expires,", leavesWhatIsNeeded},
			{"SET look = min(max(expires, kept),", "SET look = min(kept,", leavesWhatIsNeeded},
			{"SET look = min(max(expires, kept), 9223372033254775807) +", "SET look = max(expires, kept) +", leavesWhatIsNeeded},
			{"9223372033254775807) + 3600000000\n", "9223372033254775807) - 3600000000\n", leavesWhatIsNeeded},
			{"SELECT key FROM lockstep_lock WHERE look < ", "SELECT key FROM lockstep_lock WHERE look > ", goesOnWhileThereAreRows},
		},
		mariadb.name: {
			{"GREATEST(expires, kept) < ", "expires < ", leavesWhatIsNeeded},
			{"GREATEST(expires, kept) < ", "kept < ", leavesWhatIsNeeded},
			{" AND GREATEST(expires, kept) < ", " AND 0 < ", someRounds},
			{" - 3600000000\n", "\n", leavesWhatIsNeeded},
			{" - 3600000000\n", " - 11000000000\n", goesOnWhileThereAreRows},
			{"SET look = LEAST(GREATEST(expires, kept),", "SET look = LEAST(expires,", leavesWhatIsNeeded},
			{"SET look = LEAST(GREATEST(expires, kept),", "SET look = LEAST(kept,", leavesWhatIsNeeded},
			{"SET look = LEAST(GREATEST(expires, kept), 9223372033254775807) +", "SET look = GREATEST(expires, kept) +", leavesWhatIsNeeded},
			{"9223372033254775807) + 3600000000\n", "9223372033254775807) - 3600000000\n", leavesWhatIsNeeded},
			{"WHERE look < ", "WHERE look > ", goesOnWhileThereAreRows},
			{"FOR UPDATE SKIP LOCKED", "FOR UPDATE", doesNotWait},
			{"FOR UPDATE SKIP LOCKED", "", doesNotWait},
		},
	}
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		try := func(m mutant, limit time.Duration) (all []string, sent bool) {
			t.Helper()
			outside{t, db}.exec("DELETE FROM lockstep_lock")
			way := mutating{db.Driver(), db.dsn, m.was, m.is, new(atomic.Int64)}
			on := database{sql.OpenDB(way), db.dsn, d}
			defer func() { _ = on.Close() }()
			on.SetMaxOpenConns(30)
			all = trial.Failures(t, limit, func(t testing.TB) { m.by(t, on) })
			return all, way.sent.Load() > 0
		}
		bodies := map[string]body{"needed": leavesWhatIsNeeded, "goes on": goesOnWhileThereAreRows, "race": someRounds}
		if d.name == mariadb.name {
			bodies["waits"] = doesNotWait
		}
		if !full.Size() { // the tests run beside this one
			bodies = nil
		}
		for name, b := range bodies {
			if all, _ := try(mutant{by: b}, patience); len(all) > 0 {
				t.Fatalf("without a mutant %s fails: %v", name, all)
			}
		}
		for i, m := range mutants[d.name] {
			if !full.Size() && i%4 != 0 {
				continue
			}
			// Some mutants go on until their limit. On a busy machine nothing may be sent by then.
			limit := 10 * time.Second
			all, sent := try(m, limit)
			for !sent && limit < patience {
				limit *= 2
				all, sent = try(m, limit)
			}
			switch {
			case !sent:
				t.Errorf("%q is not sent", m.was)
			case len(all) == 0:
				t.Errorf("with %q in place of %q nothing fails", m.is, m.was)
			default:
				t.Logf("%q: %s", m.is, all[0])
			}
		}
	})
}
