package campaign

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/beneath"
	"github.com/lockstep-go/lockstep/internal/verify/history"
	"github.com/lockstep-go/lockstep/internal/verify/matrix"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestFailovers kills the master under Sentinel again and again, while a crew works under locks and one lock is kept for as long
// as it takes until a replica has become the master, and the dead server has come back as a replica.
//
//   - With asynchronous replication, and replicas that hear nothing more shortly before, the lock that is kept is granted to
//     someone else as well, and updates are lost (V). With numbers, a guard refuses what comes late (S), unless the clock of
//     the new master is behind: then the numbers fall (V).
//   - With as many replicas to acknowledge as there are, nothing is granted twice, and the lock that is kept stays; but until
//     all servers are back nobody gets a lock (U). One of two replicas is not enough (V).
//
// It prints how long nobody held one of the other locks at each failover. The sentinels take a second of silence for death, and the
// dead server is started again as soon as there is another master. What the master was told to release, and the replicas did not
// hear, comes back for what was left of its lease.
//
//	go test ./internal/verify/campaign -run TestFailovers -v                      one failover of each kind
//	LOCKSTEP_TORTURE=1 go test ./internal/verify/campaign -run TestFailovers -v   20
//
// To change it: the table says what is lost with the master, failover what happens when, crew_test.go what is done under locks.
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
	acknowledged    int   // so many replicas must have a grant; 0: replication is asynchronous
	cut             among // hears nothing more before the master is killed
	behind          bool  // the clock of the first replica; it, and the first master, take turns
	overlaps        bool  // two hold the lock that is kept
	violated        bool  // updates are lost, or numbers fall
}

// among the replicas.
type among func(t *testing.T, s *redistest.Sentinel) []*redistest.Server

func everyone(_ *testing.T, s *redistest.Sentinel) []*redistest.Server { return s.Replicas() }

// promoted is the one that will be promoted.
func promoted(_ *testing.T, s *redistest.Sentinel) []*redistest.Server {
	r := s.Replicas()[0]
	s.Prefer(r)
	return []*redistest.Server{r}
}

const (
	farBehind = time.Hour       // longer than anyone waits
	crewTTL   = 5 * time.Second // what was not released where it counts is in the way for as long
)

func (f failovers) run(t *testing.T) {
	t.Parallel() // sentinels and workers wait most of the time
	times := 1
	if torture {
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
	t.Logf("%d failovers: %v", times, c)
	t.Logf("no grants for p50, p99, max %s", spread(outages))
	if (len(overlaps) > 0) != f.overlaps || !f.overlaps && c.stolen > 0 {
		t.Errorf("%d overlaps, %d locks lost before their time; want some: %v", len(overlaps), c.stolen, f.overlaps)
	}
	if (lost+len(inversions) > 0) != f.violated {
		t.Errorf("%d updates were lost, %d numbers fell; want some: %v", lost, len(inversions), f.violated)
	}
	if guarded && c.bank.late() == 0 {
		t.Error("nobody came late: the guard had nothing to do")
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

// dial is a Client of its own.
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

// failover is one of them, while key is kept. It tells how long nobody could have another lock.
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
	c.still(f.behind, func() { // or what they have would stay for an hour
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
	dead.Restart() // empty: no sentinel leads anyone to it
	for _, r := range cut {
		r.MendReplication()
	}
	c.awaitMore(1, others, "the other locks are granted again", c.grantsOf)
	if f.overlaps {
		eventually(t, "the lock that is kept is granted to someone else", func() bool { return c.grantsOf(key) > before })
	} else {
		eventually(t, "the lock that is kept is extended", func() bool { return f.extended(t, kept) })
		if n := c.grantsOf(key); n > before {
			t.Errorf("%q was granted %d times while it was kept", key, n-before)
		}
	}
	if unheard != nil {
		_ = unheard.end() // someone else has been granted it
	}
	if err := context.Cause(kept.Context()); err != nil {
		t.Errorf("%q: who keeps it has been told: %v", key, err)
	}
	if err := kept.end(); err != nil && (!f.overlaps || !errors.Is(err, locker.ErrLost)) { // nil if it had to be repeated
		t.Errorf("%q: Unlock = %v; want it lost: %v", key, err, f.overlaps)
	}
	return c.longestGap(killed, others)
}

// ask wants a lock of which no replica would hear, and is not granted it. If it is, that is kept.
func (f failovers) ask(t *testing.T, c *crew, keeper *locker.Client, key string) (granted *hold) {
	t.Helper()
	eventually(t, "the grant that no replica hears of is refused", func() bool {
		l, err := keeper.TryLock(t.Context(), key, locker.WithTTL(keptTTL))
		if err == nil {
			t.Errorf("%q was granted, and no replica knows", key)
			granted = c.begin(l, "keeper")
		}
		return err == nil || errors.As(err, new(*redisstore.ReplicasError))
	})
	return granted
}

// extended may fail, but does not say that the lock is lost.
func (f failovers) extended(t *testing.T, kept *hold) bool {
	err := kept.Extend(t.Context(), keptTTL)
	if errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrHeld) {
		t.Fatalf("%q is kept, and Extend = %v", kept.Key(), err)
	}
	return err == nil
}
