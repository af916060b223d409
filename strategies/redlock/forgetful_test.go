package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// A lease of two seconds can meet two restarts, one per second. 4 of 5 nodes tolerate two, and 3 of
// 5 do not.
const (
	forgetEvery = time.Second
	forgetTTL   = 2 * time.Second
)

func TestFourOfFiveLoseNoLockToAServerThatForgetsEverySecond(t *testing.T) {
	if found := forgetful(t, 4); len(found) > 0 {
		t.Errorf("%d overlaps, the first: %v", len(found), found[0])
	}
}

// TestThreeOfFiveLoseLocksToAServerThatForgetsEverySecond shows that the load can find a lost lock.
func TestThreeOfFiveLoseLocksToAServerThatForgetsEverySecond(t *testing.T) {
	if found := forgetful(t, 3); len(found) == 0 {
		t.Error("no overlaps")
	}
}

// forgetful puts a load on a quorum of w of five nodes.
func forgetful(t *testing.T, w int) []history.Overlap {
	keys, grants := 60, int64(300)
	if full.Size() {
		keys, grants = 600, 20_000
	} else {
		t.Parallel()
	}
	servers := redistest.StartN(t, 5)
	l := reach(quick).quorum(t, servers, plain, redlock.WithQuorum(w))
	disturb, kills := forgetting(servers, forgetEvery)
	began := time.Now()
	holds := load{locker: l, keys: keys, contenders: 3, ttl: forgetTTL}.run(t, grants, disturb)
	took := time.Since(began).Round(time.Millisecond)
	found := history.Overlaps(holds)
	t.Logf("%d of 5: %d grants, %d kills, %d overlaps in %v", w, len(holds), *kills, len(found), took)
	return found
}

// TestAsManyServersMayForgetAsTheTableSaysAndNoMore acquires a lease on a bare quorum, and restarts some of its
// servers.
func TestAsManyServersMayForgetAsTheTableSaysAndNoMore(t *testing.T) {
	for _, c := range []struct {
		w, forget int
		overlap   bool
	}{{3, 0, false}, {3, 1, true}, {4, 2, false}, {4, 3, true}} {
		t.Run(fmt.Sprintf("%d of 5, %d forget", c.w, c.forget), func(t *testing.T) {
			t.Parallel()
			servers := redistest.StartN(t, 5)
			req := contract.Request{Key: "key", Token: "one", TTL: 10 * time.Minute}
			for _, s := range servers[c.w:] { // so that the lease is on w servers only
				s.Kill()
			}
			first := mustAcquire(t, reach(quick).quorum(t, servers, plain, redlock.WithQuorum(c.w)), req)
			for _, s := range servers[c.w:] {
				s.Restart()
			}
			for _, s := range servers[:c.forget] {
				s.Kill()
				s.Restart()
			}
			req.Token = "another"
			_, err := reach(quick).quorum(t, servers, plain, redlock.WithQuorum(c.w)).Acquire(t.Context(), req)
			switch {
			case first.Ended():
				t.Fatal("this machine is too slow")
			case c.overlap && err != nil:
				t.Errorf("the second Acquire = %v; want two holders", err)
			case !c.overlap && !errors.Is(err, locker.ErrHeld):
				t.Errorf("the second Acquire = %v; want it held", err)
			}
		})
	}
}

// TestAsManyNodesMayForgetAsTheTableSaysAndNoMore checks the table of the package comment. The lock is held on w
// nodes while the others are down. Then the others are back, and some of the w forget.
func TestAsManyNodesMayForgetAsTheTableSaysAndNoMore(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for w := n/2 + 1; w <= n; w++ {
			for forget := range w + 1 {
				synctest.Test(t, func(t *testing.T) {
					nodes := newNodes(n)
					for _, down := range nodes[w:] {
						down.set("acquire", behaviour{err: errDown})
					}
					l := quorumOf(t, nodes, redlock.WithQuorum(w))
					mustAcquire(t, l, request())
					synctest.Wait()
					for _, down := range nodes[w:] {
						down.set("acquire", behaviour{})
					}
					for _, forgetful := range nodes[:forget] {
						forgetful.store.Delete("k")
					}
					_, err := l.Acquire(t.Context(), request())
					if overlap, tolerated := err == nil, forget <= 2*w-n-1; overlap == tolerated {
						t.Errorf("%d of %d, %d forget: %v", w, n, forget, err)
					}
				})
			}
		}
	}
}
