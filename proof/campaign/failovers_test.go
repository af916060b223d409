package campaign

import (
	"context"
	"errors"
	"slices"
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
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestFailovers kills the master under Sentinel repeatedly. Meanwhile a crew works under locks, and
// one lock is kept until a replica has become the master and the dead server has come back as a
// replica.
//
//   - With asynchronous replication and replicas that were cut off shortly before, the lock that is
//     kept is granted to another holder too, and updates are lost (V). With numbers, a guard
//     refuses late updates (S). If the clock of the new master is behind, the numbers fall (V).
//   - If all replicas must acknowledge, nothing is granted twice and the lock that is kept stays.
//     But until all servers are back nobody gets a lock (U). One of two replicas is not enough (V).
//
// It prints how long nobody held one of the other locks at each failover. For the sentinels a
// second of silence is death, and the dead server restarts as soon as there is another master. A
// lock whose release did not reach the replicas comes back for the rest of its lease.
//
//	go test ./proof/campaign -run TestFailovers -v                      one failover of each kind
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run TestFailovers -v   20
//
// To change it: the table says what is lost with the master, failover does the steps, and
// crew_test.go works under locks.
func TestFailovers(t *testing.T) {
	t.Parallel()
	for _, f := range []failovers{
		{strategy: "single", fault: "failover, replicas cut off", replicas: 1, cut: everyone, overlaps: true, violated: true},
		{
			strategy: "single, 1 of 2 replicas", fault: "failover, replicas cut off", replicas: 2, acknowledged: 1, cut: promoted,
			overlaps: true, violated: true,
		},
		{strategy: "single, all replicas", fault: "failover", replicas: 2, acknowledged: 2},
		{strategy: "single, all replicas", fault: "failover, replicas cut off", replicas: 2, acknowledged: 2, cut: everyone},
		{strategy: "fenced, guarded", fault: "failover, replicas cut off", replicas: 1, cut: everyone, numbered: true, overlaps: true},
		{
			strategy: "fenced, guarded", fault: "failover, replicas cut off, clock behind", replicas: 1, cut: everyone, numbered: true,
			behind: true, overlaps: true, violated: true,
		},
		{strategy: "fenced, all replicas", fault: "failover, replicas cut off", replicas: 1, acknowledged: 1, cut: everyone, numbered: true},
	} {
		t.Run(f.strategy+", "+f.fault, f.run)
	}
}

// failovers is one experiment.
type failovers struct {
	strategy, fault string
	numbered        bool
	replicas        int
	// the number of replicas that must have a grant; 0: replication is asynchronous
	acknowledged int
	cut          among // the replicas that are cut off before the master is killed
	behind       bool  // the clock of the first replica is behind
	overlaps     bool  // the lock that is kept gets a second holder
	violated     bool  // updates are lost, or numbers fall
}

// among selects some of the replicas.
type among func(t *testing.T, s *redistest.Sentinel) []*redistest.Server

func everyone(_ *testing.T, s *redistest.Sentinel) []*redistest.Server { return s.Replicas() }

// promoted selects the replica that the sentinels will promote.
func promoted(_ *testing.T, s *redistest.Sentinel) []*redistest.Server {
	r := s.Replicas()[0]
	s.Prefer(r)
	return []*redistest.Server{r}
}

const (
	farBehind = time.Hour // longer than any wait
	// a lock whose release the new master does not have stays for so long
	crewTTL = 5 * time.Second
)

func (f failovers) run(t *testing.T) {
	t.Parallel() // the sentinels and the crew wait most of the time
	times := 1
	if full.Size() {
		times = 20
	}
	var opts []redistest.Option
	if f.behind {
		opts = append(opts, redistest.WithMovableClock())
	}
	s := redistest.StartSentinel(t, f.replicas, opts...)
	if f.behind {
		s.Servers()[1].MoveClock(-farBehind)
	}
	keeper := f.dial(t, s)
	keys := []string{"invoice/1", "invoice/2", "invoice/3"}
	guarded := f.numbered && f.overlaps
	c := assemble(t, keys, guarded, 2, crewTTL, f.dial(t, s), f.dial(t, s), f.dial(t, s))
	var outages []time.Duration
	for i := range times {
		outages = append(outages, f.failover(t, s, c, keeper, keys[i%len(keys)]))
	}
	c.dismiss()

	overlaps, lost, inversions := history.Overlaps(c.holds), c.bank.lost(), c.inversions()
	matrix.Figures(t, "%d failovers: %v", times, c)
	matrix.Figures(t, "no grants for p50, p99, max %s", spread(outages))
	if (len(overlaps) > 0) != f.overlaps || !f.overlaps && c.stolen > 0 {
		t.Errorf("%d overlaps, %d locks lost before their time; want some: %v", len(overlaps), c.stolen, f.overlaps)
	}
	if (lost+len(inversions) > 0) != f.violated {
		t.Errorf("%d updates were lost, %d numbers fell; want some: %v", lost, len(inversions), f.violated)
	}
	if guarded && c.bank.late() == 0 {
		t.Error("no update came late, so the guard had nothing to do")
	}
	violations := len(overlaps)
	if guarded {
		violations = lost
	}
	matrix.Cell{
		Strategy: f.strategy, Fault: f.fault, Where: "redis-server", Trials: len(c.grants), Violations: violations, Inverted: len(inversions),
		Down: slices.Max(outages), Command: command(t.Name()),
	}.Report(t)
}

// dial returns a new Client.
func (f failovers) dial(t *testing.T, s *redistest.Sentinel) *locker.Client {
	opts := []redisstore.Option{beneath.Long}
	if f.acknowledged > 0 {
		opts = append(opts, redisstore.WithReplicas(f.acknowledged, 500*time.Millisecond))
	}
	store := goredis.New(beneath.DialSentinel(t, s), opts...)
	if f.numbered {
		return locker.New(fenced.New(store))
	}
	return locker.New(single.New(store))
}

// failover does one failover while key is kept. It returns how long nobody held one of the other
// locks.
func (f failovers) failover(t *testing.T, s *redistest.Sentinel, c *crew, keeper *locker.Client, key string) time.Duration {
	s.AwaitReplicas()
	others := slices.DeleteFunc(slices.Clone(c.keys), func(k string) bool { return k == key })
	c.awaitMore(5, c.keys, "all locks are granted", c.grantsOf)
	var kept *hold
	if !f.overlaps {
		kept = c.keep(keeper, key)
	}
	var cut []*redistest.Server
	if f.cut != nil {
		cut = f.cut(t, s)
	}
	c.still(f.behind, func() { // a lock of the crew would stay for an hour if the clock is behind
		for _, r := range cut {
			r.CutReplication()
		}
	})
	var unheard *hold
	switch {
	case f.overlaps:
		kept = c.keep(keeper, key)
	case cut != nil:
		unheard = f.ask(t, c, keeper, others[0])
	}
	before := c.grantsOf(key)

	killed := time.Now()
	dead := s.KillMaster()
	s.AwaitFailover(dead)
	dead.Restart() // without data; no sentinel leads a client to it
	for _, r := range cut {
		r.MendReplication()
	}
	c.awaitMore(1, others, "the other locks are granted again", c.grantsOf)
	if f.overlaps {
		eventually(t, "the lock that is kept is granted to another holder", func() bool { return c.grantsOf(key) > before })
	} else {
		eventually(t, "the lock that is kept is extended", func() bool { return f.extended(t, kept) })
		if n := c.grantsOf(key); n > before {
			t.Errorf("%q was granted %d times while it was kept", key, n-before)
		}
	}
	if unheard != nil {
		_ = unheard.end() // another holder has it
	}
	if err := context.Cause(kept.Context()); err != nil {
		t.Errorf("%q: the context of its keeper ended: %v", key, err)
	}
	// it is nil if the release was repeated
	err := kept.end()
	if err != nil && !errors.Is(err, locker.ErrLost) { // it took longer than three seconds, and goes on
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err = kept.Unlock(ctx)
	}
	if err != nil && (!f.overlaps || !errors.Is(err, locker.ErrLost)) {
		t.Errorf("%q: Unlock = %v; want it lost: %v", key, err, f.overlaps)
	}
	return c.longestGap(killed, others)
}

// ask asks for a lock that no replica would have, and must not get it. A grant is an error and is
// returned.
func (f failovers) ask(t *testing.T, c *crew, keeper *locker.Client, key string) (granted *hold) {
	t.Helper()
	eventually(t, "an attempt that no replica acknowledges fails", func() bool {
		l, err := keeper.TryLock(t.Context(), key, locker.WithTTL(keptTTL))
		if err == nil {
			t.Errorf("%q was granted, and no replica has it", key)
			granted = c.begin(l, "keeper")
		}
		return err == nil || errors.As(err, new(*redisstore.ReplicasError))
	})
	return granted
}

// extended tries to extend. It may fail, but the lock must not be lost.
func (f failovers) extended(t *testing.T, kept *hold) bool {
	err := kept.Extend(t.Context(), keptTTL)
	if errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrHeld) {
		t.Fatalf("%q is kept, and Extend = %v", kept.Key(), err)
	}
	return err == nil
}
