package rivals

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies"
)

// A Campaign is one experiment: rivals, a server and the faults that strike in turn.
type Campaign struct {
	Where   string // the table of the matrix: the kind of server
	Setting string // of the server or the store, for the names in the matrix; may be empty
	Module  string // its directory in the repository, for the command of a cell

	Open strategies.Open
	// Addr returns the address for Open. It is called once for each rival, and via gives it a proxy
	// to a server at host:port.
	Addr       func(via func(server string) string) string
	Strategies []Strategy // nil: all that the store carries
	Brief      []Strategy // without LOCKSTEP_TORTURE=1; nil: Strategies
	Processes  bool       // each rival is a process that calls [Process]

	TTL time.Duration
	// Kept: leases are not renewed, and each hold lasts from half a TTL to a TTL. So a server that
	// forgets has that time to come back and grant the lock again. A renewal would tell the holder.
	Kept bool

	Faults []Fault
	Rounds int // how often each fault strikes; 0: once, and 5 times with LOCKSTEP_TORTURE=1
	Grants int // of each strategy, after each strike; 0: 5, and 15 with LOCKSTEP_TORTURE=1
	// Violated: each strategy must have violations. The faults strike until then, 20 times as often.
	Violated bool
}

// A Fault strikes servers or holders, and heals them if it must.
type Fault struct {
	Name   string // in the matrix
	Strike func(*Crew)
}

// TwoAtOnce makes an experiment a parallel test, of which two run at once. With more of them a program
// might wait for a CPU for as long as its lease lasts.
func TwoAtOnce(t *testing.T) {
	t.Helper()
	t.Parallel()
	experiments <- struct{}{}
	t.Cleanup(func() { <-experiments })
}

var experiments = make(chan struct{}, 2)

// rivals is how many there are.
const rivals = 3

// Run runs the experiment. It fails the test if there are violations and none are expected, or the
// other way round, and reports a cell for each strategy and fault. A cell is unavailable if nobody
// held the lock for more than two TTLs although it was wanted. A grant whose answer was lost explains
// less.
func (c Campaign) Run(t *testing.T) {
	t.Helper()
	cells, found := c.play(t)
	for _, v := range found[:min(len(found), 5)] {
		t.Log(v.Text)
	}
	for _, wrong := range c.wrong(cells, found) {
		t.Error(wrong)
	}
	if !t.Failed() { // otherwise it may not have come to the end
		for _, cell := range cells {
			cell.Report(t)
		}
	}
}

// wrong says what is not expected. Before the first strike, violations belong to no cell.
func (c Campaign) wrong(cells []matrix.Cell, found []Violation) (wrong []string) {
	if !c.Violated && len(found) > 0 {
		wrong = append(wrong, fmt.Sprintf("%d violations, the first: %s; want none", len(found), found[0].Text))
	}
	violated := map[string]int{}
	for _, cell := range cells {
		violated[cell.Strategy] += cell.Violations
		if cell.Trials == 0 {
			wrong = append(wrong, fmt.Sprintf("%s under %s: no grants", cell.Strategy, cell.Fault))
		}
	}
	for strategy, n := range violated {
		if c.Violated && n == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: no violation; want some", strategy))
		}
	}
	return wrong
}

// play plays the experiment.
func (c Campaign) play(t *testing.T) (cells []matrix.Cell, found []Violation) {
	t.Helper()
	rounds, grants := 1, 5
	if full.Size() {
		rounds, grants = 5, 15
	}
	if c.Rounds > 0 {
		rounds = c.Rounds
	}
	if c.Grants > 0 {
		grants = c.Grants
	}
	if c.Brief != nil && !full.Size() {
		c.Strategies = c.Brief
	}
	crew := c.assemble(t)
	defer crew.dismiss()
	crew.More(grants)
	for round := 0; round < rounds || c.Violated && round < 20*rounds && !crew.violated(); round++ {
		for _, fault := range c.Faults {
			crew.phases.Begin(fault.Name)
			fault.Strike(crew)
			crew.More(grants)
			if t.Failed() {
				return nil, nil
			}
		}
	}
	crew.dismiss()
	return crew.cells()
}

// A Crew is the rivals of one experiment. Faults strike them by their numbers, from 0.
type Crew struct {
	T      *testing.T
	TTL    time.Duration
	c      Campaign
	record *Record
	phases Phases

	dismiss func()
	rivals  []*rival
}

// A rival is one program.
type rival struct {
	name   string
	orders orders
	relays []*redistest.Proxy
	cmd    *exec.Cmd     // of a process
	ended  chan struct{} // closed when all output of the process is read
}

func (c Campaign) assemble(t *testing.T) *Crew {
	t.Helper()
	crew := &Crew{T: t, TTL: c.TTL, record: NewRecord(t)}
	over, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	crew.dismiss = sync.OnceFunc(func() {
		end()
		for i := range crew.rivals {
			if c.Processes {
				crew.Kill(i)
			}
		}
		running.Wait()
	})
	t.Cleanup(crew.dismiss)
	for i := range rivals {
		r := &rival{name: fmt.Sprint("rival ", i)}
		addr := c.Addr(func(server string) string {
			relay := redistest.NewRelay(t, server)
			r.relays = append(r.relays, relay)
			return relay.Addr()
		})
		if c.Strategies == nil {
			c.Strategies = carried(t, c.Open, addr)
		}
		r.orders = orders{Rival: i, Addr: addr, TTL: c.TTL, Kept: c.Kept, Strategies: c.Strategies}
		crew.rivals = append(crew.rivals, r)
		if c.Processes {
			crew.Restart(i)
			continue
		}
		running.Go(func() {
			tell := func(line string) { crew.record.Hear(r.name, line) }
			if err := r.orders.run(over, c.Open, tell); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		})
	}
	crew.c = c
	return crew
}

// carried returns the strategies that a store carries.
func carried(t *testing.T, open strategies.Open, addr string) (all []Strategy) {
	t.Helper()
	store, closeStore, err := open(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	if closeStore != nil {
		defer func() { _ = closeStore() }()
	}
	_, queues := store.(backends.QueuedStore)
	_, numbers := store.(backends.NumberedStore)
	_, shares := store.(backends.SharedStore)
	_, orders := store.(backends.OrderedStore)
	for _, s := range All() {
		has := true
		switch s.Name {
		case Fair.Name:
			has = queues
		case Fenced.Name:
			has = numbers
		case Reentrant.Name, Semaphore.Name:
			has = shares
		case SemaphoreInOrder.Name, ReadersAndWriters.Name:
			has = orders
		}
		if has {
			all = append(all, s)
		}
	}
	return all
}

// More waits until each strategy has n more grants.
func (c *Crew) More(n int) {
	c.T.Helper()
	now := time.Now()
	want := map[string]int{}
	for _, s := range c.c.Strategies {
		want[s.Name] = n
	}
	for seen, deadline := c.record.count(), now.Add(Patience); len(want) > 0; time.Sleep(5 * time.Millisecond) {
		for _, t := range c.record.since(seen) {
			seen++
			if _, wanted := want[t.Key]; wanted {
				deadline = time.Now().Add(Patience) // slow is not stuck
			}
			if want[t.Key]--; want[t.Key] <= 0 {
				delete(want, t.Key)
			}
		}
		if time.Now().After(deadline) {
			c.T.Fatalf("%v after the last grant of any of them, these strategies lack so many: %v", Patience, want)
		}
	}
}

// of returns the tenures of a strategy. Its lock has its name.
func of(s Strategy, all []Tenure) (its []Tenure) {
	for _, t := range all {
		if t.Key == s.Name {
			its = append(its, t)
		}
	}
	return its
}

// violated tells whether each strategy had a violation more than a second ago. What processes have
// told later may not be complete.
func (c *Crew) violated() bool {
	settled := time.Now().Add(-time.Second).UnixNano()
	var all []Tenure
	for _, t := range c.record.Tenures() {
		if t.Answered < settled {
			all = append(all, t)
		}
	}
	for _, s := range c.c.Strategies {
		some := false
		for _, v := range s.judge(of(s, all)) {
			some = some || !v.Inverted
		}
		if !some {
			return false
		}
	}
	return true
}

// cells judges what was told.
func (c *Crew) cells() (cells []matrix.Cell, found []Violation) {
	all := c.record.Tenures()
	for _, s := range c.c.Strategies {
		its := of(s, all)
		violations := s.judge(its)
		found = append(found, violations...)
		for _, fault := range c.c.Faults {
			cell := matrix.Cell{
				Strategy: s.Name, Fault: fault.Name, Where: c.c.Where,
				Command: matrix.Again("-C "+c.c.Module+" .", c.T.Name()),
			}
			if c.c.Setting != "" {
				cell.Strategy += ", " + c.c.Setting
			}
			cell = c.phases.Cell(cell, its, violations)
			free := c.phases.longestFree(its, fault.Name)
			if free > 2*c.TTL {
				cell.Down = free
			}
			c.T.Logf("%s under %s: %v; free for %v at most", cell.Strategy, fault.Name, cell, free.Round(time.Millisecond))
			cells = append(cells, cell)
		}
	}
	return cells, found
}

// Restart starts the process of a rival that was killed.
func (c *Crew) Restart(i int) {
	c.T.Helper()
	r := c.rivals[i]
	text, err := json.Marshal(r.orders)
	if err != nil {
		c.T.Fatal(err)
	}
	cmd, _, out := child.Start(c.T, ordersEnv+"="+string(text))
	r.cmd, r.ended = cmd, make(chan struct{})
	go func() {
		defer close(r.ended)
		c.listen(r.name, out)
	}()
}

func (c *Crew) listen(who string, out *bufio.Reader) {
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return
		}
		c.record.Hear(who, strings.TrimSuffix(line, "\n"))
	}
}

// Kill kills the process of a rival.
func (c *Crew) Kill(i int) {
	r := c.rivals[i]
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.ended                // before Wait, which closes the pipe
	_ = r.cmd.Wait()
}

// Signal signals the process of a rival.
func (c *Crew) Signal(i int, sig os.Signal) {
	c.T.Helper()
	if err := c.rivals[i].cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.T.Error(err)
	}
}

// Holder waits for the next grant, and returns the rival that has it.
func (c *Crew) Holder() int {
	c.T.Helper()
	who := c.record.Next(c.T, time.Now(), func(Tenure) bool { return true }).Who
	for i, r := range c.rivals {
		if r.name == who {
			return i
		}
	}
	return 0
}

// Relays returns the proxies of a rival, or of all with a negative number.
func (c *Crew) Relays(i int) (all []*redistest.Proxy) {
	for n, r := range c.rivals {
		if i < 0 || i == n {
			all = append(all, r.relays...)
		}
	}
	return all
}

// Lead leads all rivals to another server, as a name or a virtual address does after a failover.
// Connections to the old one end.
func (c *Crew) Lead(from, to string) {
	for _, relay := range c.Relays(-1) {
		if relay.Leads() == from {
			relay.Lead(to)
			relay.CutAll()
		}
	}
}
