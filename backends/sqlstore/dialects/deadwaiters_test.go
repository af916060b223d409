package dialects_test

import (
	"fmt"
	"testing"
)

// There is no queue, and waiters poll: an attempt that finds the lock held adds no row. So waiters that have
// died leave nothing to pass over. A take and a release read as many rows after 50 and 500 of them as after
// none. SQLite does not count what it reads: there, only the rows that are left count.
func TestWaitersThatHaveDiedLeaveNothing(t *testing.T) {
	both(t, func(t *testing.T, d dialect) {
		db := d.fresh(t)
		s := db.store()
		take := func(token string, want bool) {
			t.Helper()
			if r, err := s.SetNX(t.Context(), "key", token, maxTTL); err != nil || r.OK != want {
				t.Fatalf("SetNX = %+v, %v", r, err)
			}
		}
		release := func(token string) {
			t.Helper()
			if ok, err := s.DeleteIf(t.Context(), "key", token); err != nil || !ok {
				t.Fatalf("DeleteIf = %v, %v", ok, err)
			}
		}
		cycle := func() int {
			t.Helper()
			before := db.read(t)
			take("next", true)
			release("next")
			return db.read(t) - before
		}
		take("token", true)
		release("token")
		cycle()
		alone := cycle()
		t.Logf("%d rows", alone)
		for _, n := range []int{50, 500} {
			take("token", true)
			for i := range n {
				take(fmt.Sprint("dead", i), false)
			}
			var rows int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM lockstep_lock").Scan(&rows); err != nil || rows != 1 {
				t.Errorf("after %d waiters have died there are %d rows, %v; want the one of the lock", n, rows, err)
			}
			release("token")
			if got := cycle(); got > alone+10 {
				t.Errorf("after %d waiters have died a take and a release read %d rows; want about %d, as without them", n, got, alone)
			}
		}
	})
}

// read is how many rows the server has read by an index; 0 for SQLite, which does not count them.
func (db database) read(t *testing.T) (sum int) {
	t.Helper()
	if db.dialect.driver != "mysql" {
		return 0
	}
	found, err := db.QueryContext(t.Context(), "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_prev')")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var name string
		var n int
		if err := found.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}
