package dialects_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// An error of the server about a statement that it has broken off says that nothing was done. That must be
// true also while a commit waits for a replica: what is broken off then is the wait alone.
func TestAWriteThatIsBrokenOffInItsCommitIsNotToldAsNotDone(t *testing.T) {
	t.Parallel()
	p := startPair(t, time.Hour)
	db := p.dial(p.primary)
	if err := mariadb.install(t.Context(), db.db.DB); err != nil {
		t.Fatal(err)
	}
	limit := "max_statement_time=1" // in seconds
	if db.mysql {
		limit = "max_execution_time=1000" // in ms; it is for reads alone
	}
	for _, point := range []string{"AFTER_SYNC", "AFTER_COMMIT"} {
		for how, of := range map[string]struct {
			options string
			breaks  func(*testing.T, admin)
		}{
			"KILL QUERY":                  {"", killAtCommit},
			"the time for each statement": {"?" + limit, func(*testing.T, admin) {}},
		} {
			t.Run(point+", "+how, func(t *testing.T) {
				app := mariadb.dial(t, p.primary.DSN()+of.options)
				db.exec(fmt.Sprintf("SET GLOBAL %s = '%s'", db.variable("source_wait_point"), point))
				for take := range 5 { // a slow server may break the statement off before its commit
					p.keepsUp()
					p.replica.Pause()
					key := fmt.Sprint(t.Name(), take)
					answered := make(chan error, 1)
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
						defer cancel()
						r, err := app.store().SetNX(ctx, key, "token", time.Hour)
						if err == nil && !r.OK {
							t.Errorf("SetNX = %+v", r)
						}
						answered <- err
					}()
					of.breaks(t, db)
					err := <-answered
					p.replica.Resume()
					p.keepsUp()
					_, _, isThere := db.Get(key)
					if notDone := backends.Permanent(err) || backends.Unsent(err); isThere == notDone {
						t.Fatalf("SetNX = %v; the row is there: %v", err, isThere)
					}
					if isThere {
						return
					}
				}
				t.Error("no statement came to its commit")
			})
		}
	}
}

// killAtCommit waits for a statement that waits for a replica, and breaks it off.
func killAtCommit(t *testing.T, db admin) {
	t.Helper()
	var id int64
	eventually(t, "a commit waits for the replica", func() bool {
		return db.db.QueryRow("SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync ACK%'").Scan(&id) == nil
	})
	db.exec(fmt.Sprint("KILL QUERY ", id))
}
