package campaign

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/rivals"
)

// TestSharesInCrashes asks whether primitives other than the lock keep their limits when processes
// and servers fail. Three processes, each through another client library and a proxy of its own,
// take permits of a semaphore, read and write, lead, do the job of a period, or pass locks on with
// tickets. Meanwhile a process
// that was just granted something is killed, stopped, or cut off for longer than its lease. The
// server, which syncs each write to its append-only file, is killed and stopped too.
//
//   - A semaphore of 3 has never more than 3 unexpired permits. A hold counts from its grant to its
//     release or the end of its lease, whether its process lives or not. The store has never more
//     holds either, nor a writer and another.
//   - No writer holds beside a reader or another writer, and the number of each epoch is greater
//     than all before.
//   - At most one term of an election is unexpired, and the numbers of terms rise. The release is
//     sent after lead has returned.
//   - A job that is done is not done again within its minimum hold.
//   - A lock that passes from process to process has one holder, also if a ticket is sent twice, and
//     the number of each holder is greater than all before.
//   - After each fault the others go on.
//   - A server that forgets its data admits 3 more. So a semaphore without persistence is exceeded
//     when its server is killed (V).
//
// It prints how long it took from the death of a leader or writer to the next grant, and what it
// took from a resignation to the next term. A takeover after a death should take the TTL and a
// moment, and one after a resignation one attempt. Neither is asserted.
//
//	go test ./proof/campaign -run SharesInCrashes -v                     each fault once
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run SharesInCrashes -v  20 times
//
// To change it: what a process does is in shares_program_test.go, what the test hears of it in
// shares_fleet_test.go. A new line below is a new experiment. TestSharesThatAreBroken shows that
// each can fail.
func TestSharesInCrashes(t *testing.T) {
	for _, s := range shares {
		s.strategy += ", AOF always"
		t.Run(s.strategy, func(t *testing.T) { s.run(t, shareFaults, false, "--appendonly", "yes", "--appendfsync", "always") })
	}
	forgetful := shares[0]
	forgetful.strategy += ", no persistence"
	t.Run(forgetful.strategy, func(t *testing.T) { forgetful.run(t, serversKilled, true) })
}

// A share is something that several processes want.
type share struct {
	strategy string
	work     string // of the processes: see program.run
	together bool   // several hold a key at once, in a SharedStore
	groups   string // what a process may be granted
	enough   int    // grants after each fault
	judge    func([]rivals.Tenure) []rivals.Violation
}

var shares = []share{
	{"semaphore of 3", "permits", true, "permit", 30, judgePermits},
	{"semaphore of 3, in order", "permits in order", true, "permit", 30, judgePermits},
	{"rwlock", "reading and writing", true, "read write", 30, judgeWriters},
	{"election", "leading", false, "lead", 2, judgeTerms},
	{"minimum hold", "jobs", false, "job", 10, judgeJobs},
	{"tickets", "passing on", false, "pass resumed", 30, judgePasses},
}

func judgePermits(all []rivals.Tenure) []rivals.Violation {
	return rivals.Crowds(all, "permit", permits)
}

func judgeWriters(all []rivals.Tenure) []rivals.Violation {
	return append(rivals.Mixtures(all), rivals.Inversions(all)...)
}

func judgeTerms(all []rivals.Tenure) []rivals.Violation {
	return append(rivals.Overlaps(all, "lead"), rivals.Inversions(all)...)
}

func judgeJobs(all []rivals.Tenure) []rivals.Violation {
	return rivals.Overlapping(history.Overlaps(rivals.Holds(all, endOf, "job")))
}

func judgePasses(all []rivals.Tenure) []rivals.Violation {
	return append(rivals.Overlaps(all, "pass", "resumed"), rivals.Inversions(all)...)
}

// A shareFault strikes a fleet.
type shareFault struct {
	name   string
	strike func(*fleet)
}

var serversKilled = []shareFault{{"servers killed", func(f *fleet) {
	f.next(time.Now())
	f.server.Kill()
	f.server.Restart()
}}}

// shareFaults strike one after the other.
var shareFaults = append([]shareFault{
	{"holders killed", func(f *fleet) {
		g := f.next(time.Now())
		f.kill(g.of)
		died := time.Now()
		f.start(g.of.library)
		if f.died(g) {
			f.takeovers = append(f.takeovers, f.nextOf(g.Key, died).Sub(died))
		}
	}},
	{"holders stopped", func(f *fleet) {
		g := f.next(time.Now())
		g.of.signal(f.t, syscall.SIGSTOP)
		time.Sleep(2 * leaseTTL)
		g.of.signal(f.t, syscall.SIGCONT)
	}},
	{"holders cut off", func(f *fleet) {
		g := f.next(time.Now())
		g.of.proxy.BlackHole(true)
		time.Sleep(2 * leaseTTL)
		g.of.proxy.BlackHole(false)
	}},
	{"servers stopped", func(f *fleet) {
		f.next(time.Now())
		f.server.Pause()
		time.Sleep(2 * leaseTTL)
		f.server.Resume()
	}},
}, serversKilled...)

const fleetSize = 3 // processes

// run lets all faults strike in turn. If violations are expected, it goes on until there is one.
func (s share) run(t *testing.T, faults []shareFault, violated bool, server ...string) {
	t.Parallel()
	rounds := 1
	if full.Size() {
		rounds = 20
	}
	f := &fleet{t: t, share: s, server: redistest.Start(t, redistest.WithArgs(server...)), record: rivals.NewRecord(t)}
	for i := range fleetSize {
		f.start(i)
	}
	stop := f.watch()
	defer stop()
	f.more(s.enough)
	for round := 0; round < rounds || violated && round < 20*rounds && !f.violated(); round++ {
		for _, fault := range faults {
			f.phases.Begin(fault.name)
			fault.strike(f)
			f.more(s.enough)
			if t.Failed() {
				return
			}
		}
	}
	f.dismiss()
	looked := stop()
	all := f.record.Tenures()
	found := append(s.judge(all), f.seen()...)
	for group := range strings.FieldsSeq(s.groups) {
		n := 0
		for _, g := range all {
			if g.Group == group {
				n++
			}
		}
		t.Logf("%d grants of %q", n, group)
		if n == 0 {
			t.Error("that is too few")
		}
	}
	if (len(found) > 0) != violated {
		t.Errorf("%d violations; want some: %v", len(found), violated)
	}
	for _, v := range found[:min(len(found), 5)] {
		t.Log(v.Text)
	}
	matrix.Figures(t, "%d grants, %d looks at the store, %d violations%s", len(all), looked, len(found), f)
	for _, fault := range faults {
		f.phases.Cell(matrix.Cell{Strategy: s.strategy, Fault: fault.name, Where: "redis-server", Command: command(t.Name())}, all, found).Report(t)
	}
}

// violated tells whether there was a violation more than a second ago. What the processes have told
// later may not be complete.
func (f *fleet) violated() bool {
	settled := time.Now().Add(-time.Second).UnixNano()
	return len(f.share.judge(slices.DeleteFunc(f.record.Tenures(), func(t rivals.Tenure) bool { return t.Answered > settled }))) > 0
}

// TestSharesThatAreBroken lets goroutines do what the processes above do, with a strategy that does
// not keep its promise. The checks of TestSharesInCrashes must find it:
//
//   - the semaphores have a permit more than they should, which is seen in the store as well
//   - the readers lock another key than the writers
//   - the leaders are those of a semaphore of 2
//   - the jobs have no minimum hold
//   - who gives a lock away goes on as if it had the lock
func TestSharesThatAreBroken(t *testing.T) {
	server := redistest.Start(t)
	for i, s := range shares {
		t.Run(s.strategy, func(t *testing.T) {
			t.Parallel()
			f := &fleet{t: t, share: s, prefix: fmt.Sprint("broken ", i), server: server, record: rivals.NewRecord(t)}
			stop := f.watch()
			defer stop()
			dismiss := f.employ()
			defer dismiss()
			var found []rivals.Violation
			eventually(t, "a violation is found", func() bool {
				found = slices.DeleteFunc(s.judge(f.record.Tenures()), func(v rivals.Violation) bool { return v.Inverted })
				return len(found) > 0
			})
			t.Log(found[0].Text)
			if strings.HasPrefix(s.work, "permits") {
				eventually(t, "it is seen in the store", func() bool { return len(f.seen()) > 0 })
				t.Log(f.seen()[0].Text)
			}
		})
	}
}
