package campaign

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/table"
)

// TestSoak asks what happens to a program that locks for a long time under faults. Goroutines and
// processes add to counters under locks of five strategies, through two client libraries. Meanwhile
// servers are killed and stopped, connections break, messages are lost and late, and processes are
// killed, often several at once. The strategies promise to tolerate all of these faults.
//
//   - No update is lost, no two hold a lock at once, and numbers rise.
//   - Each period ends with a moment of rest, without faults and workers. Then every lock is free,
//     no goroutine of Lockstep runs, and the servers have no keys but the counters of numbered
//     locks.
//   - Nothing grows: at rest the program and the servers use no more at the end than earlier. When
//     all clients are closed, they use as much as before there were any.
//
// It prints what it did and measured, one line for each period.
//
//	go test ./proof/campaign -run TestSoak -v                      a few seconds
//	go test ./proof/campaign -run TestSoak -v -soak 10m            as long as you like
//	go test ./proof/campaign -run TestSoak -v -soak 1h -timeout 2h an hour, as with LOCKSTEP_TORTURE=1
//
// The seed that it prints, given as -seed, draws the same faults in the same order, at other
// moments.
//
// To change it: the strategies and their users are in soak_team_test.go, the faults in
// soak_fault_test.go, the measurements in soak_sample_test.go.
func TestSoak(t *testing.T) {
	lasting, of := soakTime(t), *seedFlag
	if of == 0 {
		of = rand.Uint64()
	}
	t.Logf("go test ./proof/campaign -run TestSoak -v -soak %v -seed %d", lasting, of)
	s := setUpSoak(t)
	before := s.measure(t)
	s.connect(t)
	period := min(max(lasting/60, time.Second), time.Minute)
	s.began = time.Now()
	for n := uint64(0); s.goesOn(lasting) && !t.Failed(); n++ {
		// a subtest frees the memory that the test keeps for it
		t.Run(fmt.Sprint("period ", n+1), func(t *testing.T) {
			atLast := nothingRunsOn(t)
			s.work(t, period, of+n)
			s.rest(t)
			atLast()
			for _, c := range s.teams {
				c.check(t)
			}
			s.samples = append(s.samples, s.measure(t))
			t.Log(s.samples[len(s.samples)-1])
		})
	}
	s.close(t)
	after, start := s.measure(t), before
	// counters and scripts stay on the servers
	start.of[keysInServers], start.of[memoryOfServers] = after.of[keysInServers], after.of[memoryOfServers]
	start.of[heap] += keptByRuntime
	for _, what := range grown([]sample{start}, []sample{after}) {
		t.Errorf("with all clients closed: %s", what)
	}
	for _, what := range trend(s.samples) {
		t.Errorf("it grows: %s", what)
	}
	t.Logf("%v\n%s", time.Since(s.began).Round(time.Second), printed(before, s.samples, after))
	matrix.Figures(t, "%v", &s.tally)
	for _, c := range s.teams {
		c.report(t, lasting)
	}
}

var (
	soakFlag = flag.Duration("soak", 0, "how long TestSoak lasts; 0: a few seconds, or an hour with LOCKSTEP_TORTURE=1")
	seedFlag = flag.Uint64("seed", 0, "of the faults of TestSoak; 0: any")
)

// keptByRuntime, in KB, is the memory that the runtime keeps after goroutines and timers have
// ended. It is the same after half an hour and an hour.
const keptByRuntime = 1024

var soakedInFull bool

// soakTime is an hour only once, even if -count repeats all tests.
func soakTime(t *testing.T) time.Duration {
	lasting := *soakFlag
	if lasting == 0 {
		lasting = 4 * time.Second
		if full.Size() && !soakedInFull {
			lasting, soakedInFull = time.Hour, true
		}
	}
	if end, ok := t.Deadline(); ok && time.Until(end) < lasting+min(lasting, patience) {
		t.Fatalf("a soak of %v takes longer than -timeout allows", lasting)
	}
	return lasting
}

// A soak has the servers, and the teams that lock on them.
type soak struct {
	groups []group
	teams  []*team
	tally  tally

	began   time.Time
	samples []sample
}

// A group has servers, of which one at a time is killed or stopped.
type group []site

// A site is a server with its proxy.
type site struct {
	server *redistest.Server
	proxy  *redistest.Proxy
}

func setUpSoak(t *testing.T) *soak {
	// A small file is rewritten often, so an hour fills neither the disk nor the memory of a server
	// that starts.
	aof := []string{"--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-min-size", "4mb"}
	s := &soak{}
	for _, servers := range [][]*redistest.Server{
		redistest.StartN(t, 1, redistest.WithArgs(aof...)),
		redistest.StartN(t, 5, redistest.WithArgs(aof...)),
		redistest.StartN(t, 5), // these forget
	} {
		var g group
		for _, server := range servers {
			g = append(g, site{server, redistest.NewProxy(t, server.Addr())})
		}
		s.groups = append(s.groups, g)
	}
	one, remember, forget := s.groups[0], s.groups[1], s.groups[2]
	s.teams = []*team{
		{strategy: "single, AOF always", over: one, build: of(table.Named("single"), 1, table.Setup{}).build},
		{strategy: "fenced, guarded, AOF always", over: one, build: of(table.Named("fenced"), 1, table.Setup{}).build, guarded: true, processes: "fenced"},
		{strategy: "reentrant, AOF always", over: one, build: of(table.Named("reentrant"), 1, table.Setup{}).build, nested: true},
		{strategy: "redlock 4 of 5", over: forget, build: of(table.Named("redlock"), 5, table.Setup{Quorum: 4}).build},
		{
			strategy: "redlock numbered 3 of 5, AOF always", over: remember, build: of(table.Named("redlock-fenced"), 5, table.Setup{}).build,
			guarded: true, processes: "numbered",
		},
	}
	for _, c := range s.teams {
		c.tally, c.bank = &s.tally, openBank(t, c.guarded)
	}
	return s
}

// goesOn tells whether the time is not over, or, on a busy machine, a team has not yet done
// anything.
func (s *soak) goesOn(lasting time.Duration) bool {
	for _, c := range s.teams {
		if c.bank.made() == 0 && time.Since(s.began) < lasting+patience/2 {
			return true
		}
	}
	return time.Since(s.began) < lasting
}

func (s *soak) connect(t *testing.T) {
	for _, c := range s.teams {
		c.connect(t)
	}
}

// work lets the teams work under faults for a time. It returns when all work and all faults have
// ended.
func (s *soak) work(t *testing.T, lasting time.Duration, of uint64) {
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	var all sync.WaitGroup
	var started uint64
	start := func(run func(*rand.Rand)) {
		started++
		dice := rand.New(rand.NewPCG(of, started))
		all.Go(func() { run(dice) })
	}
	var staff []*office
	for _, c := range s.teams {
		for i, locks := range c.clients {
			for w := range members {
				who := fmt.Sprintf("member %d of Client %d", w, i)
				start(func(dice *rand.Rand) { (&member{c, t, who, locks, dice, ctx}).work() })
			}
		}
		if c.processes != "" {
			staff = append(staff, c.open(t))
		}
	}
	for _, g := range s.groups {
		start(func(dice *rand.Rand) { s.strikeServers(ctx, g, dice) })
	}
	start(func(dice *rand.Rand) { s.strikeNetwork(ctx, dice) })
	start(func(dice *rand.Rand) { s.strikeProcesses(ctx, t, staff, dice) })
	all.Wait()
	for _, o := range staff {
		o.worker.end()
	}
}

// rest waits until each lock is free and no key of it is left.
func (s *soak) rest(t *testing.T) {
	for _, c := range s.teams {
		for _, key := range c.keys() {
			for _, locks := range c.clients {
				eventually(t, fmt.Sprintf("%s: %q becomes free", c.strategy, key), func() bool {
					l, err := locks.TryLock(t.Context(), key) // it fails on a broken connection
					return err == nil && l.Unlock(context.Background()) == nil
				})
			}
		}
	}
	for _, site := range s.sites() {
		var left []string
		eventually(t, "all locks are gone from the servers", func() bool {
			left = locksIn(t, site.server)
			return len(left) == 0
		})
		site.proxy.Forget()
	}
}

// locksIn returns the keys of a server, except the counters of numbered locks.
func locksIn(t *testing.T, server *redistest.Server) (locks []string) {
	reply, err := server.Do("KEYS", "*")
	if err != nil {
		t.Errorf("looking at a server: %v", err)
	}
	keys, _ := reply.([]any)
	for _, key := range keys {
		if name, _ := key.(string); !strings.HasSuffix(name, "fence") {
			locks = append(locks, name)
		}
	}
	return locks
}

// close closes all clients, and waits until all connections have ended.
func (s *soak) close(t *testing.T) {
	for _, c := range s.teams {
		for _, cn := range c.connections {
			cn.close()
		}
	}
	var proxies []*redistest.Proxy
	for _, site := range s.sites() {
		proxies = append(proxies, site.proxy)
	}
	noConnectionStays(t, proxies)
	for _, site := range s.sites() {
		// who looks
		eventually(t, "no client is left", func() bool { return info(t, site.server)["connected_clients"] == 1 })
	}
}

func (s *soak) sites() (all []site) {
	for _, g := range s.groups {
		all = append(all, g...)
	}
	return all
}
