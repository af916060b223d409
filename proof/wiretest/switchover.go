// Package wiretest has tests of the Redis family that each adapter runs with its own client
// library: the replies of servers with faults, and a master that becomes a replica.
package wiretest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// Open opens a store on the server at addr, which has just been started, and closes it with the
// test.
type Open func(t *testing.T, addr string, opts ...redisstore.Option) *redisstore.Store

// modes are different ways to send the same calls.
var modes = []struct {
	name string
	opts []redisstore.Option
}{
	{"scripts", nil},
	{"no scripts", []redisstore.Option{redisstore.WithoutScripts()}},
}

// patience is the limit for events that come at once.
const patience = 20 * time.Second

const (
	short = time.Minute
	long  = time.Hour
)

// Switchover makes the master a replica that keeps its connections. All locks are renewed and
// released through the address, which then leads to the new master, and new ones are granted. Many
// connections are open by then. Of calls made one after the other, at most mayFail fail because of
// them.
func Switchover(t *testing.T, open Open, mayFail int) {
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSwitchover(t)
			store := open(t, s.Addr(), mode.opts...)
			const locks = 80
			all := func(what string, call func(key string) (bool, error)) {
				t.Helper()
				var done sync.WaitGroup
				for i := range locks {
					done.Go(func() {
						key := fmt.Sprint("lock ", i)
						succeeds(t, what+" of "+key, func() (bool, error) { return call(key) })
					})
				}
				done.Wait()
			}
			set := func(token string) func(key string) (bool, error) {
				return func(key string) (bool, error) {
					r, err := store.SetNX(t.Context(), key, token, short)
					return r.OK, err
				}
			}
			extend := func(key string) (bool, error) { return store.ExpireIf(t.Context(), key, "before", long) }
			all("SetNX", set("before"))
			all("ExpireIf", extend)

			s.Switch()
			failed := 0
			for i := range locks {
				key := fmt.Sprint("lock ", i)
				if ok, err := extend(key); !ok {
					if failed++; err == nil || backends.Permanent(err) {
						t.Errorf("ExpireIf of %s = %v, %v", key, ok, err)
					}
				}
			}
			if failed > mayFail {
				t.Errorf("%d of %d calls failed, one after the other; want %d at most", failed, locks, mayFail)
			}
			all("ExpireIf after the switchover", extend)
			all("DeleteIf after the switchover", func(key string) (bool, error) {
				return store.DeleteIf(t.Context(), key, "before")
			})
			all("SetNX after the switchover", set("after"))
			if n, err := s.Second.Do("DBSIZE"); n != int64(locks) || err != nil {
				t.Errorf("%v locks on the new master, %v; want %d", n, err, locks)
			}
		})
	}
	t.Run("nested", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartSwitchover(t)
		store := open(t, s.Addr())
		enter := func(token string) func() (bool, error) {
			return func() (bool, error) {
				r, err := store.Enter(t.Context(), "a", token, short, backends.Admission{Group: "me"})
				return r.OK, err
			}
		}
		succeeds(t, "Enter", enter("one"))
		s.Switch()
		succeeds(t, "Renew", func() (bool, error) { return store.Renew(t.Context(), "a", "one", long) })
		succeeds(t, "Enter", enter("two"))
		succeeds(t, "Leave", func() (bool, error) { return store.Leave(t.Context(), "a", "one") })
	})
	// Calls one after the other may fail once for each open connection.
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartSwitchover(t)
		store := open(t, s.Addr())
		granted := 0
		lock := func(i int) {
			if r, err := store.SetNX(t.Context(), fmt.Sprint("lock ", i), "token", short); r.OK && err == nil {
				granted++
			}
		}
		lock(0)
		s.Switch()
		for i := range 80 {
			lock(i + 1)
		}
		if granted < 80 {
			t.Errorf("%d of 80 locks after the switchover, one before", granted-1)
		}
	})
}

// succeeds repeats a call that was not done or is unknown. The answer must be yes, or a lock was
// lost.
func succeeds(t *testing.T, what string, call func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tries := 1; ; tries++ {
		ok, err := call()
		switch {
		case ok:
			return
		case err == nil:
			if tries > 1 && isRelease(what) {
				return // an earlier try did it, and its reply was lost
			}
			t.Errorf("%s is refused", what)
			return
		case backends.Permanent(err) || ctx.Err() != nil:
			t.Errorf("%s: %v after %d tries", what, err, tries)
			return
		}
	}
}

func isRelease(what string) bool {
	return len(what) > 6 && (what[:6] == "Delete" || what[:5] == "Leave")
}
