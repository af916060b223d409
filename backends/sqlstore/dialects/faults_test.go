package dialects_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/sqlstore"
	"github.com/lockstep-go/lockstep/proof/mariadbtest"
)

// With innodb_flush_log_at_trx_commit = 1 a grant that was told is on disk. With 2 it is with the operating
// system, so only a crash of that loses it. With 0 the log is written once a second, so a crash of the
// server loses the last grants, unless it was written just then.
func TestACrashOfMariaDBForgetsNoGrantThatWasFlushed(t *testing.T) {
	for level, forgets := range map[string]bool{"1": false, "2": false, "0": true} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			server := mariadbtest.Start(t, "innodb-flush-log-at-trx-commit="+level)
			db := mariadb.dial(t, server.DSN())
			if err := mariadb.install(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			forgot := 0
			for round := 0; round < 10 && forgot == 0; round++ {
				s := db.store(sqlstore.WithPrefix(fmt.Sprint(round, "/")))
				takeMany(t, s)
				server.Kill()
				server.Restart()
				forgot = forgotten(t, s)
				if !forgets {
					break
				}
			}
			if forgets != (forgot > 0) {
				t.Errorf("%d of 50 grants were forgotten", forgot)
			}
		})
	}
}

// takeMany takes 50 locks, and returns the last number.
func takeMany(t *testing.T, s store) (number uint64) {
	t.Helper()
	for i := range 50 {
		r, err := s.SetNXNumbered(t.Context(), strconv.Itoa(i), "token", 20*time.Minute, backends.Turn{})
		if err != nil || !r.OK {
			t.Fatal(r, err)
		}
		number = r.Fence
	}
	return number
}

// forgotten counts the locks of takeMany that the server has forgotten.
func forgotten(t *testing.T, s store) (n int) {
	t.Helper()
	for i := range 50 {
		eventually(t, "the server answers", func() bool {
			ok, err := s.ExpireIf(t.Context(), strconv.Itoa(i), "token", 20*time.Minute)
			if err == nil && !ok {
				n++
			}
			return err == nil
		})
	}
	return n
}

// Calls that meet on few keys, by several connections, end in no deadlock and no error.
func TestCallsThatMeetOnNewKeys(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		var granted atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			s := db.store()
			all.Go(func() {
				for i := range 40 {
					r, err := s.SetNX(t.Context(), strconv.Itoa(i), "one for all, one at a time", 10*time.Minute)
					if err != nil || !r.OK {
						t.Errorf("SetNX = %+v, %v", r, err)
					}
					token := strconv.FormatInt(granted.Add(1), 10)
					if r, err = s.SetNX(t.Context(), "new "+strconv.Itoa(i), token, 10*time.Minute); err != nil {
						t.Errorf("SetNX = %+v, %v", r, err)
					}
					if r.OK {
						if ok, err := s.DeleteIf(t.Context(), "new "+strconv.Itoa(i), token); err != nil || !ok {
							t.Errorf("DeleteIf = %v, %v", ok, err)
						}
					}
				}
			})
		}
		all.Wait()
	})
}

func TestACallThatGetsNoConnectionWasNotSent(t *testing.T) {
	db := mariadb.dial(t, "root@tcp(127.0.0.1:1)/test") // nobody listens there
	_, err := db.store().SetNX(t.Context(), "k", "token", time.Minute)
	wantClass(t, "SetNX", err, false, true)
}

// A renewal waits for the file until the lease has ended. Others may have seen the key free by then.
func TestARenewalThatWaitsForTooLongDoesNotBringTheLockBack(t *testing.T) {
	db := sqlite.fresh(t)
	s := db.store()
	other, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	exec := func(statement string) {
		t.Helper()
		if _, err := other.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 { // on a slow machine the lease may end before the renewal reads it
		if r, err := s.SetNX(t.Context(), "k", "token", 200*time.Millisecond); err != nil || !r.OK {
			t.Fatal(r, err)
		}
		exec("BEGIN IMMEDIATE")
		renewed := make(chan error, 1)
		go func() {
			ok, err := s.ExpireIf(t.Context(), "k", "token", time.Minute)
			if ok {
				err = errors.New("renewed")
			}
			renewed <- err
		}()
		eventually(t, "the lease has ended", func() bool { return !outside{t, db}.Holds("k") })
		exec("COMMIT")
		if err := <-renewed; err != nil {
			t.Fatalf("ExpireIf of a lease that had ended: %v", err)
		}
	}
}
