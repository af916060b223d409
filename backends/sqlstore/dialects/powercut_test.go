package dialects_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
	"github.com/lockstep-go/lockstep/proof/powercut"
)

// With innodb_flush_log_at_trx_commit = 2 a grant that was told is with the operating system, and comes to
// the disk once a second. Here that is never, so that all are lost.
func TestAPowerCutForgetsGrantsOfMariaDBUnlessTheyAreSynced(t *testing.T) {
	for level, forgets := range map[string]bool{"1": false, "2": true} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			server := mariadbtest.StartWithVolatileDisk(t, "innodb-flush-log-at-trx-commit="+level, "innodb-flush-log-at-timeout=2700")
			db := mariadb.dial(t, server.DSN())
			if err := mariadb.install(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			server.Stop() // the table is safe
			server.Restart()
			takeMany(t, db.store())
			server.CutPower()
			server.Restart()
			wantForgotten(t, db.store(), forgets)
		})
	}
}

// A process of the computer takes locks, and the power of the computer is cut. The file stays whole, and
// numbers go on. The process is gone, whatever the file has forgotten of its locks.
func TestAPowerCutForgetsGrantsOfSQLiteUnlessTheyAreSynced(t *testing.T) {
	for synchronous, forgets := range map[string]bool{"OFF": true, "NORMAL": true, "FULL": false} {
		t.Run(synchronous, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files := filepath.Join(dir, "files")
			if err := os.Mkdir(files, 0o700); err != nil {
				t.Fatal(err)
			}
			dsn := "file:" + filepath.Join(files, "locks.db") + "?_pragma=busy_timeout(10000)&_pragma=synchronous(" + synchronous + ")"
			open := func() database {
				db := sqlite.dial(t, dsn)
				if err := sqlite.install(t.Context(), db.DB); err != nil {
					t.Fatal(err)
				}
				return db
			}
			_ = open().Close() // the table is in the file
			disk := powercut.NewDisk(files)
			p, err := disk.Start(dir, child.Command(t, "TestProcess", "DIALECT="+sqlite.name, "DSN="+dsn, "ROLE=taker"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Kill)
			var last uint64
			if err := p.Await(func(log string) bool { n, _ := fmt.Sscanf(log, "taken %d\n", &last); return n == 1 }); err != nil {
				t.Fatal(err)
			}
			p.Kill()
			if err := disk.Cut(); err != nil {
				t.Fatal(err)
			}

			db := open()
			wantForgotten(t, db.store(), forgets)
			if r, err := db.store().SetNXNumbered(t.Context(), "next", "token", time.Minute, backends.Turn{}); err != nil || r.Fence <= last {
				t.Errorf("the number after %d is %d, %v", last, r.Fence, err)
			}
			var state string
			if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&state); err != nil || state != "ok" {
				t.Errorf("the file is damaged: %v, %v", state, err)
			}
		})
	}
}

// wantForgotten wants some locks of takeMany to be forgotten, or none.
func wantForgotten(t *testing.T, s store, some bool) {
	t.Helper()
	if n := forgotten(t, s); some != (n > 0) {
		t.Errorf("%d of 50 grants were forgotten; want some: %v", n, some)
	}
}
