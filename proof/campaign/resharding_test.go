package campaign

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestReshardings moves the slots of locks from one master of a Redis Cluster to the next and back.
// Meanwhile a crew works under these locks, and one of them is kept through every move. A move has
// the steps of redis-cli (CLUSTER SETSLOT IMPORTING and MIGRATING, MIGRATE, SETSLOT NODE). After
// each step it waits until the crew has had answers under every lock.
//
//   - No two hold a lock at once, no update is lost, no number falls.
//   - No lock is lost: it can be extended and unlocked at every step. None is left on any server at
//     the end.
//   - A lock that only one caller wants is never held. An attempt that fails is a fault.
//   - A waiter is woken from the server that has the lock.
//
// Under single and reentrant nothing fails (S). New grants of fenced fail while the slot moves (U):
// they need two keys, and Redis serves both only where both are. It prints how long that was, and
// the longest time between two holds. This test decides how long a move takes.
//
//	go test ./proof/campaign -run TestReshardings -v                      2 moves
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run TestReshardings -v   20
//
// To change it: the steps of a move are in move, the work under locks is in crew_test.go.
func TestReshardings(t *testing.T) {
	t.Parallel()
	for _, r := range []reshardings{
		{"single", func(s beneath.Store) locker.Locker { return single.New(s) }, false},
		{"reentrant", func(s beneath.Store) locker.Locker { return reentrant.New(s) }, false},
		{"fenced", func(s beneath.Store) locker.Locker { return fenced.New(s) }, true},
	} {
		t.Run(r.strategy, r.run)
	}
}

// reshardings is one experiment.
type reshardings struct {
	strategy string
	over     func(beneath.Store) locker.Locker
	// it has a counter that stays, and no new grants while lock and counter are on two servers
	numbered bool
}

func (r reshardings) run(t *testing.T) {
	t.Parallel()
	moves, answers := 2, 3
	if full.Size() {
		moves, answers = 20, 30
	}
	cluster := redistest.StartCluster(t, 3, 0)
	dial := func() (beneath.Store, *locker.Client) {
		store := goredis.New(beneath.DialCluster(t, cluster), beneath.Long)
		return store, locker.New(r.over(store), locker.WithTTL(keptTTL))
	}
	ears, keeper := dial()
	staff := make([]*locker.Client, 3)
	for i := range staff {
		_, staff[i] = dial()
	}
	var keys []string // in two slots
	for _, m := range cluster.Masters()[:2] {
		slot := cluster.KeyOn(m, "{%d}")
		keys = append(keys, slot+"a", slot+"b", slot+"c")
	}
	c := assemble(t, keys, false, 3, keptTTL, staff...)
	c.patient.Store(true)
	unwanted := []*loner{r.alone(c, staff[0], keys[0]+"/alone"), r.alone(c, staff[1], keys[3]+"/alone")}

	for i := range moves {
		moving := keys[:3]
		if i%2 == 1 {
			moving = keys[3:]
		}
		r.move(t, cluster, c, keeper, ears, moving, answers)
	}
	c.dismiss()

	gap := c.longestGap(c.began, keys)
	matrix.Figures(t, "%d moves: %v; %d releases were not confirmed within %v, and were later", moves, c, c.slow, releaseLimit)
	t.Logf("the longest time between two holds was %v; locks that only one caller wanted were granted %d and %d times",
		gap.Round(time.Millisecond), unwanted[0].grants, unwanted[1].grants)
	violations, inversions := len(history.Overlaps(c.holds))+c.bank.lost()+c.stolen, len(c.inversions())
	if violations+inversions > 0 || c.unconfirmed > 0 {
		t.Errorf("%d locks could not be unlocked, and above something is not 0", c.unconfirmed)
	}
	for kind := range c.faults {
		// wait_limit: on a busy machine
		if kind != "redis_tryagain" && kind != "wait_limit" || kind == "redis_tryagain" && !r.numbered {
			t.Errorf("%d faults: %s", c.faults[kind], kind)
		}
	}
	cell := matrix.Cell{
		Strategy: r.strategy, Fault: "slots moved", Where: "redis-server", Trials: len(c.grants) + unwanted[0].grants + unwanted[1].grants,
		Violations: violations, Inverted: inversions, Command: command(t.Name()),
	}
	if r.numbered {
		cell.Down = gap
		if c.faults["redis_tryagain"] == 0 {
			t.Error("no new grant has failed, so nobody asked during a move")
		}
	}
	cell.Report(t)
	for _, key := range keys {
		r.nothingIsLeft(t, cluster, key)
	}
}

// move moves the slot of some keys to the next master, while the first of them is kept.
func (r reshardings) move(
	t *testing.T, cluster *redistest.Cluster, c *crew, keeper *locker.Client, ears beneath.Store, keys []string, answers int,
) {
	var wakes atomic.Int64
	ctx, deafen := context.WithCancel(t.Context())
	defer deafen()
	if err := ears.Watch(ctx, keys[1], func() { wakes.Add(1) }); err != nil {
		t.Fatal(err)
	}
	masters := cluster.Masters()
	to := masters[(slices.Index(masters, cluster.Master(keys[0]))+1)%len(masters)]
	kept := c.keep(keeper, keys[0])
	before := c.grantsOf(keys[0])
	stage := func(what string, grants bool) {
		t.Helper()
		if err := kept.Extend(t.Context(), keptTTL); err != nil {
			t.Errorf("%s: Extend = %v", what, err)
		}
		if !grants {
			c.awaitMore(answers, keys[1:], what+": attempts are answered", c.answersOf)
			return
		}
		heard := wakes.Load()
		c.awaitMore(answers, keys[1:], what+": locks are granted", c.grantsOf)
		eventually(t, what+": waiters are woken", func() bool { return wakes.Load() > heard })
	}
	stage("before the move", true)
	m := cluster.BeginMove(keys[0], to)
	stage("the move has begun", !r.numbered)
	m.Keys()
	stage("the keys have moved", !r.numbered)
	m.Finish()
	stage("the slot has moved", true)

	if n := c.grantsOf(keys[0]); n > before {
		t.Errorf("%q was granted %d times while it was kept", keys[0], n-before)
	}
	if err := context.Cause(kept.Context()); err != nil {
		t.Errorf("%q: the context of its keeper ended: %v", keys[0], err)
	}
	if err := kept.end(); err != nil {
		t.Errorf("%q: Unlock = %v", keys[0], err)
	}
}

// A loner takes a lock that no other caller wants.
type loner struct{ grants int }

// alone makes one work until the crew is dismissed. Its lock may be held only after an unknown
// attempt of its own. The reply of a server is never unknown.
func (r reshardings) alone(c *crew, locks *locker.Client, key string) *loner {
	l := new(loner)
	c.working.Go(func() {
		for unknown := false; ; {
			select {
			case <-c.over:
				return
			case <-time.After(crewRest):
			}
			lock, err := locks.TryLock(context.Background(), key)
			switch {
			case err == nil:
				l.grants++
				err := lock.Unlock(context.Background())
				if errors.Is(err, locker.ErrLost) {
					c.t.Errorf("%q: Unlock = %v", key, err)
				}
				unknown = err != nil // the machine is busy, and the release goes on
			case errors.Is(err, locker.ErrHeld) && !unknown, errors.Is(err, locker.ErrLost):
				c.t.Errorf("%q, which no other caller wants: TryLock = %v", key, err)
			default:
				c.fail(key, err)
				unknown = unknown || !errors.As(err, new(*redisstore.ReplyError))
			}
		}
	})
	return l
}

// nothingIsLeft looks at every server for keys of a lock. Only the counter may be there, on the
// server that has the slot.
func (r reshardings) nothingIsLeft(t *testing.T, cluster *redistest.Cluster, key string) {
	t.Helper()
	owner := cluster.Master(key)
	eventually(t, fmt.Sprintf("no server has keys of %q", key), func() bool {
		for _, s := range cluster.Servers() {
			reply, err := s.Do("KEYS", strings.TrimRight(key, "abc")+"*")
			if err != nil {
				t.Fatal(err)
			}
			for _, left := range reply.([]any) {
				if !r.numbered || s != owner || !strings.HasSuffix(left.(string), "fence") {
					return false
				}
			}
		}
		return true
	})
}
