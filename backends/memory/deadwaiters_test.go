package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Waiters live in the process, so one that is dead is a goroutine that hangs. Each of those here has had a
// reservation, and is late. A release calls one function for the waiter in line. If nobody is in line, it
// calls one for each late waiter: that grows with their number. LateLimit after its reservation, a late
// waiter has no position any more, and costs nothing. The waiters of a Client form a line, so a key has few
// in the store, and no call leaves the process. Redis and PostgreSQL wake eight late waiters at most.
func TestAReleaseWakesOneOfManyWaitersThatAreLate(t *testing.T) {
	for _, n := range []int{50, 500} {
		synctest.Test(t, func(t *testing.T) {
			s, woken := New(), map[string]int{}
			total := func() (sum int) {
				synctest.Wait()
				for _, times := range woken {
					sum += times
				}
				clear(woken)
				return sum
			}
			attempt := func(token, waiter string) backends.Result {
				t.Helper()
				r, err := s.SetNXQueued(t.Context(), "key", token, 20*time.Second, backends.Turn{Waiter: waiter, InOrder: true})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			release := func(token string) {
				t.Helper()
				if ok, err := s.DeleteIf(t.Context(), "key", token); err != nil || !ok {
					t.Fatalf("DeleteIf of %s = %v, %v", token, ok, err)
				}
			}
			wait := func(waiter string) {
				t.Helper()
				if err := s.WatchQueued(t.Context(), "key", waiter, func() { woken[waiter]++ }); err != nil {
					t.Fatal(err)
				}
				if r := attempt(waiter, waiter); r.OK || r.Position == 0 {
					t.Fatalf("%s gets %+v", waiter, r)
				}
			}
			attempt("before", "")
			for i := range n {
				wait(fmt.Sprint("dead", i))
			}
			late := time.Now()
			for _, turn := range s.turns {
				turn.late = late
			}
			wait("live")

			release("before")
			live := woken["live"]
			if all := total(); live != 1 || all != 1 {
				t.Errorf("with %d late waiters a release wakes %d; want the one in line, which is woken %d times", n, all, live)
			}
			if r := attempt("live", "live"); !r.OK {
				t.Errorf("the waiter in line gets %+v", r)
			}
			time.Sleep(backends.Reservation)
			if got := total(); got != 0 {
				t.Errorf("a reservation that was taken wakes %d waiters when it is over", got)
			}
			release("live")
			if got := total(); got != n {
				t.Errorf("a release with nobody in line wakes %d of %d late waiters; want all", got, n)
			}
			if r := attempt("next", ""); !r.OK {
				t.Errorf("an attempt of a free key gets %+v", r)
			}

			time.Sleep(time.Until(late.Add(backends.LateLimit)) + time.Nanosecond)
			if r := attempt("last", ""); !r.OK { // the lock of next has ended
				t.Errorf("an attempt of a free key gets %+v", r)
			}
			if left := len(s.queues["key"]); left != 0 {
				t.Errorf("%d of %d late waiters have a position after %v; want none", left, n, backends.LateLimit)
			}
			release("last")
			if got := total(); got != 0 {
				t.Errorf("a release wakes %d waiters that are late for %v", got, backends.LateLimit)
			}
		})
	}
}
