package pgxstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/pgtest"
	"github.com/lockstep-go/lockstep/proof/trial"
)

func someRounds(t testing.TB, pool *pgxpool.Pool) { removesNoKeyThatIsTaken(t, pool, 10) }

// The bodies of the tests of sweeps and of the queue find each change of what they are about. The
// text of a mutant that does not occur is an error: then it is to be adapted, so that it plants the
// same fault.
func TestMutantsOfTheSweepAndOfTheQueueAreFound(t *testing.T) {
	type body = func(t testing.TB, pool *pgxpool.Pool)
	server := pgtest.Start(t, "fsync=off", noDeadlockEnds)
	pool := dial(t, server.DSN())
	fresh := func(replace ...string) {
		t.Helper()
		outside{t, pool}.exec("DROP SCHEMA IF EXISTS lockstep CASCADE")
		text := sqlstore.PostgreSQLSchema()
		if len(replace) > 0 && strings.Count(text, replace[0]) != 1 {
			t.Fatalf("%q occurs %d times", replace[0], strings.Count(text, replace[0]))
		}
		outside{t, pool}.exec(strings.NewReplacer(replace...).Replace(text))
	}
	bodies := map[string]body{
		"needed": leavesWhatIsNeeded, "goes on": goesOnWhileThereAreRows, "under way": leavesCallsUnderWay, "crash": waitersLeaveFewRows,
		"race": someRounds, "payers": payersDoNotWait, "old program": olderProgramWorks, "late": lateWaitersKeepTheirPositions,
	}
	if !full.Size() { // the tests run beside this one
		bodies = nil
	}
	for name, b := range bodies {
		fresh()
		if all := trial.Failures(t, patience, func(t testing.TB) { b(t, pool) }); len(all) > 0 {
			t.Fatalf("without a mutant %s fails: %v", name, all)
		}
	}
	for i, m := range []struct {
		was, is string
		by      body
	}{
		// sweep.sql
		{"interval '10 minutes' ORDER BY seen", "interval '1 minute' ORDER BY seen", leavesWhatIsNeeded},
		{"interval '10 minutes' ORDER BY seen", "interval '100 minutes' ORDER BY seen", leavesWhatIsNeeded},
		{"ORDER BY seen LIMIT many FOR UPDATE SKIP LOCKED", "ORDER BY seen LIMIT many", leavesCallsUnderWay},
		{"lock WHERE look < t ORDER BY look LIMIT many FOR UPDATE SKIP LOCKED", "lock WHERE look < t ORDER BY look LIMIT many FOR UPDATE", leavesCallsUnderWay},
		{"lock WHERE look < t ORDER BY look LIMIT many FOR UPDATE SKIP LOCKED", "lock WHERE look < t ORDER BY look LIMIT many", leavesCallsUnderWay},
		{"lock WHERE look < t ORDER", "lock ORDER", leavesWhatIsNeeded},
		{"keys := keys + 1", "NULL", goesOnWhileThereAreRows},
		{"IF r.expires < t - interval '1 hour' AND", "IF r.expires < t AND", leavesWhatIsNeeded},
		{"IF r.expires < t - interval '1 hour' AND", "IF true AND", someRounds},
		{"IF r.expires < t - interval '1 hour' AND", "IF r.expires < t - interval '3 hours' AND", goesOnWhileThereAreRows},
		{" AND NOT EXISTS (SELECT FROM lockstep.waiter WHERE key = r.key) THEN", " THEN", leavesWhatIsNeeded},
		{"      DELETE FROM lockstep.lock WHERE key = r.key;\n", "", leavesWhatIsNeeded},
		{"      DELETE FROM lockstep.hold WHERE key = r.key;\n", "", leavesWhatIsNeeded},
		{"      PERFORM lockstep.wake(r.key); -- a store that still watches comes back\n", "", leavesWhatIsNeeded},
		{"THEN t -- it has waiters", "THEN '-infinity'", leavesWhatIsNeeded},
		{"ELSE least(expires, t + interval '1 day') END", "ELSE expires END", leavesWhatIsNeeded},
		{"END + interval '1 hour' WHERE key = r.key", "END - interval '1 hour' WHERE key = r.key", leavesWhatIsNeeded},
		{"number WHERE look < t ORDER BY look LIMIT many FOR UPDATE SKIP LOCKED", "number WHERE look < t ORDER BY look LIMIT many FOR UPDATE", leavesCallsUnderWay},
		{"number WHERE look < t ORDER BY look LIMIT many FOR UPDATE SKIP LOCKED", "number WHERE look < t ORDER BY look LIMIT many", leavesCallsUnderWay},
		{"numbers := numbers + 1", "NULL", goesOnWhileThereAreRows},
		{"IF n.kept < t THEN", "IF true THEN", leavesWhatIsNeeded},
		{"IF n.kept < t THEN", "IF false THEN", leavesWhatIsNeeded},
		{"SET look = kept WHERE", "SET look = look WHERE", leavesWhatIsNeeded},
		{"RETURN greatest(keys, numbers)", "RETURN keys", goesOnWhileThereAreRows},
		{"RETURN greatest(keys, numbers)", "RETURN numbers", goesOnWhileThereAreRows},
		{"sweep_some(4)", "sweep_some(0)", goesOnWhileThereAreRows},
		{"sweep_some(4)", "sweep_some(400)", goesOnWhileThereAreRows},

		// what pays for a sweep
		{"  outcome := 1;\n  IF r.expires = '-infinity' THEN", "  outcome := 1;\n  IF false THEN", goesOnWhileThereAreRows},
		{"  outcome := 1;\n  IF r.expires = '-infinity' THEN", "  outcome := 1;\n  IF true THEN", goesOnWhileThereAreRows},
		{"ON CONFLICT DO NOTHING;\n  IF r.expires = '-infinity' THEN", "ON CONFLICT DO NOTHING;\n  IF false THEN", goesOnWhileThereAreRows},
		{"remind(k);\n  END IF;\n  IF r.expires = '-infinity' THEN", "remind(k);\n  END IF;\n  IF false THEN", goesOnWhileThereAreRows},
		{"t);\n  END IF;\n  IF adds OR r.expires = '-infinity' THEN", "t);\n  END IF;\n  IF adds THEN", goesOnWhileThereAreRows},
		{"t);\n  END IF;\n  IF adds OR r.expires = '-infinity' THEN", "t);\n  END IF;\n  IF true THEN", goesOnWhileThereAreRows},
		{"t);\n  END IF;\n  IF adds OR r.expires = '-infinity' THEN", "t);\n  END IF;\n  IF r.expires = '-infinity' THEN", waitersLeaveFewRows},
		{"IF adds THEN\n            PERFORM lockstep.tidy();", "IF false THEN\n            PERFORM lockstep.tidy();", waitersLeaveFewRows},
		{"VALUES (k) ON CONFLICT DO NOTHING;", "VALUES (k) ON CONFLICT DO NOTHING; PERFORM lockstep.tidy();", payersDoNotWait},

		// queue.sql
		{"  PERFORM lockstep.tidy(k, t);\n  SELECT * INTO w", "  SELECT * INTO w", lateWaitersKeepTheirPositions},
		{"reserved IS NULL ORDER BY ticket LIMIT 1;\n  IF NOT FOUND", "reserved IS NULL ORDER BY ticket DESC LIMIT 1;\n  IF NOT FOUND", olderProgramWorks},
		{"AND reserved IS NULL ORDER BY ticket LIMIT 1;\n  IF NOT FOUND", "ORDER BY ticket LIMIT 1;\n  IF NOT FOUND", lateWaitersKeepTheirPositions},
		{"IF NOT FOUND OR w.waiter = me THEN\n    RETURN true", "IF NOT FOUND THEN\n    RETURN true", lateWaitersKeepTheirPositions},
		{"IF NOT FOUND OR w.waiter = me THEN\n    RETURN true", "IF true THEN\n    RETURN true", olderProgramWorks},
		{"  PERFORM lockstep.tell('r', w);\n  PERFORM lockstep.remind(k);", "  PERFORM lockstep.remind(k);", someRounds},
		{"  PERFORM lockstep.tell('r', w);\n  PERFORM lockstep.remind(k);", "  PERFORM lockstep.tell('r', w);", lateWaitersKeepTheirPositions},
		{"reserved <= t AND seen < t - interval '90 seconds'", "reserved <= t", lateWaitersKeepTheirPositions},
		{"reserved <= t AND seen < t - interval '90 seconds'", "seen < t - interval '90 seconds'", lateWaitersKeepTheirPositions},
		{"SET reserved = NULL, keep = reservation", "SET keep = reservation", lateWaitersKeepTheirPositions},
		{"least(w.keep, 2000000)", "w.keep", lateWaitersKeepTheirPositions},
		{"ticket <= w.ticket", "ticket < w.ticket", someRounds},
		{"IF w.seen < t - interval '1 minute' THEN", "IF false THEN", lateWaitersKeepTheirPositions},
		{"ORDER BY ticket LIMIT 8 LOOP\n    PERFORM lockstep.tell('r', w);", "ORDER BY ticket LIMIT 8 LOOP\n    NULL;", lateWaitersKeepTheirPositions},
		{"waiter = me RETURNING * INTO gone", "waiter = me || '?' RETURNING * INTO gone", lateWaitersKeepTheirPositions},
		{"IF r.kind = 2 AND r.expires > t AND r.value = convert_to(me, 'UTF8') THEN", "IF false THEN", lateWaitersKeepTheirPositions},
		{"IF coalesce(w.waiter = me, false) AND NOT told THEN", "IF false THEN", lateWaitersKeepTheirPositions},
	} {
		if !full.Size() && i%8 != 0 {
			continue
		}
		fresh(m.was, m.is)
		all := trial.Failures(t, 10*time.Second, func(t testing.TB) { m.by(t, pool) })
		if len(all) == 0 {
			t.Errorf("with %q in place of %q nothing fails", m.is, m.was)
		} else {
			t.Logf("%q: %s", m.is, all[0])
		}
	}
}
