//go:build linux

package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// backdated is what makes all rows of a database older, by %d microseconds, and what counts them.
type backdated struct{ rows, count string }

var (
	postgreSQLRows = backdated{
		rows: `UPDATE lockstep.lock SET expires = expires - AGE, look = look - AGE;
			UPDATE lockstep.number SET kept = kept - AGE, look = look - AGE;
			UPDATE lockstep.hold SET expires = expires - AGE;
			UPDATE lockstep.waiter SET seen = seen - AGE, reserved = reserved - AGE`,
		count: `SELECT (SELECT count(*) FROM lockstep.lock) + (SELECT count(*) FROM lockstep.number) + (SELECT count(*) FROM lockstep.hold)
			+ (SELECT count(*) FROM lockstep.waiter) + (SELECT count(*) FROM lockstep.watcher)`,
	}
	otherRows = backdated{
		rows:  "UPDATE lockstep_lock SET " + older("expires") + ", " + older("kept") + ", " + older("look"),
		count: "SELECT COUNT(*) FROM lockstep_lock",
	}
)

// older leaves out what is no time.
func older(column string) string {
	return strings.ReplaceAll("C = CASE WHEN C > 0 AND C < 9223372036854775807 THEN C - AGE ELSE C END", "C ", column+" ")
}

// A cron job has a key of its own each minute. Each program sweeps as it takes the lock, and lives no longer.
// The row of a key stays for an hour. If it has a number, as without -strategy single, that stays for a day.
func TestAWeekOfRunsLeavesFewRows(t *testing.T) {
	t.Parallel()
	open := func(driver, dsn string) *sql.DB {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	file := filepath.Join(t.TempDir(), "locks.db")
	postgreSQL, mariaDB := pgtest.Start(t, "fsync=off"), mariadbtest.Start(t)
	for name, c := range map[string]struct {
		store string
		db    *sql.DB
		age   string // of AGE
		each  int    // rows of a lock with a number
		backdated
	}{
		"SQLite":     {"sqlite://" + file, open("sqlite", "file:"+file+"?_pragma=busy_timeout(60000)"), "%d", 1, otherRows},
		"MariaDB":    {"mysql://root@" + mariaDB.Addr() + "/test", open("mysql", mariaDB.DSN()), "%d", 1, otherRows},
		"PostgreSQL": {postgres(postgreSQL.DSN()), open("pgx", postgreSQL.DSN()), "interval '%d microseconds'", 2, postgreSQLRows},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			must(t, c.store, "install")
			rows := func() (n int) {
				if err := c.db.QueryRowContext(t.Context(), c.count).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			// In small size few runs make up a few hours or days.
			week := func(each int, lives, between time.Duration, args ...string) {
				runs := 16
				if full.Size() {
					runs, between = 10_080, time.Minute
				}
				backdate := strings.ReplaceAll(c.rows, "AGE", fmt.Sprintf(c.age, between.Microseconds()))
				for i := range runs {
					call := append([]string{"run"}, args...)
					if i%3 == 1 {
						call = append(call, "-ttl", "9s", "-at-least", "29s") // the lease ends by itself, without a keeper
					}
					must(t, c.store, append(call, fmt.Sprintf("job %05d", i*7919%runs), "--", "true")...)
					if _, err := c.db.ExecContext(t.Context(), backdate); err != nil {
						t.Fatal(err)
					}
				}
				young := each * int(lives/between)
				if n := rows(); n < young/2 || n > young*3/2+4 {
					t.Errorf("run %v: %d rows are left after %d runs, each of which makes %d; want about %d", args, n, runs, each, young)
				} else {
					t.Logf("run %v: %d rows are left after %d runs, each of which makes %d", args, n, runs, each)
				}
			}
			week(1, time.Hour, 10*time.Minute, "-strategy", "single")
			if name == "SQLite" || full.Size() {
				week(c.each, 24*time.Hour, 4*time.Hour)
			}
		})
	}
}
