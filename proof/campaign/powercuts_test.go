package campaign

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// TestPowerCuts lets processes add to counters under locks, as TestNoUpdateIsLostInCrashes does.
// Meanwhile servers with an append-only file lose their power, and so all that they have written
// and not synced.
//
//   - With a sync after each write, every granted lock is in the file. One instance has no two
//     holders (S), numbers rise (S), and a bare majority is enough (S), even if two of five have
//     just come back empty.
//   - A client that was told that the server forgets nothing (declared) grants again as soon as the server
//     is back. With a sync after each write that is true: no two holders (S). If somebody sets a sync
//     each second while the server runs, and the server begins with its own setting again after the power
//     cut, nothing shows it: two holders (V).
//   - With a sync each second, a lock may be lost. One instance then has two holders and loses
//     updates (V). The numbers of fenced still rise, by the server's clock, and a guard that
//     compares them loses no update (S). A bare majority has two holders, and numbers fall or
//     repeat (V). This is frequent if two of five were down before and come back with the one that
//     forgets. It is rare if all are up, since a lock is then on more than three unless others
//     asked at the same time. 4 of 5 tolerate it (S), even if two forget at once (S).
//
// One server loses its power at a time, unless a line says otherwise. Then all have power for as
// long as a lease.
//
// Run it alone: go test ./proof/campaign -run TestPowerCuts -v
//
// redistest.Server.CutPower says what a power cut is here and what it leaves out.
func TestPowerCuts(t *testing.T) {
	const always, everysec = "always", "everysec"
	for _, c := range []powerCuts{
		{strategy: "single", over: "single", servers: 1, fsync: always},
		{strategy: "single", over: "single", servers: 1, fsync: everysec, overlaps: true},
		{strategy: "single, declared", over: "declared", servers: 1, fsync: always},
		{strategy: "single, declared, everysec set while it ran", over: "declared", servers: 1, fsync: always, careless: true, overlaps: true},
		{strategy: "fenced", over: "fenced", servers: 1, fsync: always, guarded: true},
		{strategy: "fenced", over: "fenced", servers: 1, fsync: everysec, guarded: true, overlaps: true},
		{strategy: "redlock 4 of 5", over: "redlock", servers: 5, fsync: everysec, full: true},
		{strategy: "redlock 4 of 5, on 4", over: "redlock", servers: 5, away: 1, together: 2, fsync: everysec},
		{strategy: "redlock numbered 3 of 5", over: "numbered", servers: 5, fsync: always, guarded: true, full: true},
		{strategy: "redlock numbered 3 of 5, on 3", over: "numbered", servers: 5, away: 2, fsync: always, guarded: true},
		{strategy: "redlock numbered 3 of 5, on 3", over: "numbered", servers: 5, away: 2, fsync: everysec, guarded: true, overlaps: true, falls: true},
		{strategy: "redlock numbered 4 of 5", over: "numbered 4", servers: 5, fsync: everysec, guarded: true, full: true},
		{strategy: "redlock numbered 3 of 5", over: "numbered", servers: 5, fsync: everysec, guarded: true, overlaps: true, falls: true, full: true},
	} {
		t.Run(c.strategy+", AOF "+c.fsync, c.run)
	}
}

// powerCuts is one experiment.
type powerCuts struct {
	strategy string
	over     string // the strategy of the workers: see job.locker
	servers  int
	together int // the number of servers that lose power at once; 0: one
	// the number of servers that are down before each cut, and come back with the others
	away    int
	fsync   string
	guarded bool // the counters refuse numbers that fall
	// somebody sets a sync each second while the servers run, which is not in their configuration
	careless bool

	// What the experiment must show.
	overlaps bool // two holders at once, and without a guard lost updates
	falls    bool // numbers fall or repeat

	full bool // only in full size: a stricter one always runs, or it takes too many cuts
}

func (c powerCuts) syncsAlways() bool { return c.fsync == "always" && !c.careless }

func (c powerCuts) victims() int { return max(c.together, 1) }

// Leases are not renewed: a renewal would find that the power cut lost the lock, and prevent the
// write. Work takes long enough for many workers to be at it when the servers are back.
const (
	powerTTL = 800 * time.Millisecond
	atWork   = 300 * time.Millisecond
)

func (c powerCuts) run(t *testing.T) {
	if c.full {
		full.Only(t)
	}
	rivals.TwoAtOnce(t)
	cuts, updates := 1, 10
	if full.Size() {
		cuts, updates = 50, 30
	}
	declared := full.Size() && c.over == "declared" && !c.careless
	if declared {
		updates = manyGrants / cuts
	}
	servers := redistest.StartN(t, c.servers, redistest.WithVolatileDisk(),
		redistest.WithArgs("--appendonly", "yes", "--appendfsync", c.fsync))
	bank, book := openBank(t, c.guarded), new(ledger)
	bank.enter(book)
	staff := make([]*worker, workers)
	for i := range staff {
		staff[i] = hire(t, addrs(servers), bank, job{Over: c.over, TTL: powerTTL, Pause: atWork})
	}

	var instants []int64
	var bytes int64
	seen := func() bool { // it has shown all that it must
		_, overlaps, inversions := book.sums()
		if c.over == "declared" && !book.early(instants) {
			return false
		}
		return book.across(instants) > 0 && (c.syncsAlways() || bytes > 0) &&
			(!c.overlaps || overlaps > 0) && (!c.overlaps || c.guarded || bank.lost() > 0) && (!c.falls || inversions > 0)
	}
	for cut := 0; cut < cuts || !seen() && cut < 50*cuts; cut++ {
		if cut > 0 && len(servers) > 1 {
			// a quorum tolerates only so many nodes that forget in the life of a lease
			time.Sleep(powerTTL)
		}
		first := cut % len(servers) // one after the other
		others := slices.Concat(servers[first:], servers[:first])
		away, others := others[:c.away], others[c.away:]
		for _, s := range away {
			s.Kill()
		}
		bank.await(t, bank.made()+updates)
		if c.careless { // all have seen the server as it is configured
			for _, s := range servers {
				if _, err := s.Do("CONFIG", "SET", "appendfsync", "everysec"); err != nil {
					t.Fatal(err)
				}
			}
			bank.await(t, bank.made()+updates)
		}
		instants = append(instants, time.Now().UnixNano())
		for _, s := range others[:c.victims()] {
			bytes += s.CutPower()
		}
		var restarts sync.WaitGroup
		for _, s := range slices.Concat(away, others[:c.victims()]) {
			restarts.Go(s.Restart)
		}
		restarts.Wait()
	}
	bank.await(t, bank.made()+updates)
	for _, w := range staff {
		w.end()
	}

	grants, overlaps, inversions := book.sums()
	lost := bank.lost()
	matrix.Figures(t, "%d cuts took %d bytes while %d locks were held; %d grants, %d updates, %d refused as late; %d overlaps, %d lost, "+
		"%d numbers fell or repeated", len(instants), bytes, book.across(instants), grants, bank.made(), bank.late(), overlaps, lost, inversions)
	if declared && grants < manyGrants {
		t.Errorf("%d grants; want %d", grants, manyGrants)
	}
	if book.across(instants) == 0 || !c.syncsAlways() && bytes == 0 {
		t.Error("at no power cut was a lock held, or nothing was lost")
	}
	if c.over == "declared" && !book.early(instants) {
		t.Errorf("after no power cut was a lock granted within %v, so quarantine was never cut short", early)
	}
	if (overlaps > 0) != c.overlaps {
		t.Errorf("%d overlaps; want some: %v", overlaps, c.overlaps)
	}
	if !c.guarded && (lost > 0) != c.overlaps || lost > 0 && c.guarded && !c.falls {
		t.Errorf("%d updates were lost", lost)
	}
	if c.guarded && (inversions > 0) != c.falls {
		t.Errorf("%d numbers fell or repeated; want some: %v", inversions, c.falls)
	}
	fault := "power cut"
	if c.victims() > 1 {
		fault = fmt.Sprint("power cut of ", c.victims())
	}
	cell := matrix.Cell{
		Strategy: c.strategy + ", AOF " + c.fsync, Fault: fault, Where: "redis-server", Trials: grants, Violations: max(overlaps, lost),
		Command: command(t.Name()),
	}
	cell.Report(t)
	if c.guarded {
		cell.Strategy, cell.Violations, cell.Inverted = c.strategy+", guarded, AOF "+c.fsync, lost, inversions
		cell.Report(t)
	}
}

// manyGrants are to show no overlap where the declaration is true.
const manyGrants = 10_000

// early is much less than quarantine, which takes 31.3 s or more with default options.
const early = 10 * time.Second

// early tells whether a lock was asked for and granted early after one of the instants, in ns since 1970.
func (l *ledger) early(instants []int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(instants, func(cut int64) bool {
		return slices.ContainsFunc(l.grants, func(g history.Grant) bool {
			return g.Asked > cut && g.Answered < cut+int64(early)
		})
	})
}

// A ledger records the holds and grants of all workers. A nil ledger records nothing.
type ledger struct {
	mu     sync.Mutex
	holds  []history.Hold
	grants []history.Grant
}

func (l *ledger) granted(m message, who string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = append(l.grants, history.Grant{Key: m.Counter, Who: who, Asked: m.Asked, Answered: m.Answered, Fence: m.Fence})
}

// held leaves out a hold that was lost before its end: nobody knows when.
func (l *ledger) held(m message, who string) {
	if l == nil || m.Until == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, history.Hold{Key: m.Counter, Who: who, Start: m.Answered, End: m.Until})
}

func (l *ledger) sums() (grants, overlaps, inversions int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	numbered := slices.DeleteFunc(slices.Clone(l.grants), func(g history.Grant) bool { return g.Fence == 0 })
	return len(l.grants), len(history.Overlaps(l.holds)), len(history.Inversions(numbered))
}

// across counts the holds during which one of the instants came.
func (l *ledger) across(instants []int64) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range instants {
		for _, h := range l.holds {
			if h.Start < at && at < h.End {
				n++
			}
		}
	}
	return n
}
