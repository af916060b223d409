package campaign

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestWaitersOfOtherProcessesGoOnWhenOneIsKilled asks how a killed process affects the others. Four
// processes with five waiters each want one lock repeatedly, each through another client library.
// One of them is killed with SIGKILL while all its waiters wait, the next while one of them holds
// the lock. Then it is started again.
//
//   - The others go on: at once if the dead process had only waiters. Otherwise they go on when its
//     lease ends, by their own looks, since the dead holder wakes nobody.
//   - No two hold the lock at once. The dead may count as a holder until its lease ends.
//
// It prints how long the lock was not granted after each kind of death.
//
//	go test ./proof/campaign -run TestWaitersOfOtherProcessesGoOnWhenOneIsKilled -v
//
// To change it: what the processes do is in waitAndReport.
func TestWaitersOfOtherProcessesGoOnWhenOneIsKilled(t *testing.T) {
	kills := 6
	if full.Size() {
		kills = 200
	}
	atLast := nothingRunsOn(t)
	server := redistest.Start(t)
	look := libraries[0].dial(t, server.Addr())
	ours := locker.New(single.New(look.store), locker.WithTTL(theQueuesTTL))

	c := &crowd{t: t, server: server, grants: make(chan grant, 1000)}
	for i := range libraries {
		c.start(i)
	}
	var waiting, holding []time.Duration
	for kill := range kills {
		victim := kill / 2 % len(libraries)
		if kill%2 == 0 {
			waiting = append(waiting, c.killWaiting(ours, victim))
		} else {
			holding = append(holding, c.killHolding(victim))
		}
		if t.Failed() {
			return
		}
		c.start(victim)
	}
	for i := range libraries {
		c.kill(i)
	}
	overlaps := history.Overlaps(c.holds)
	if len(overlaps) > 0 {
		t.Errorf("%d overlaps, the first: %v", len(overlaps), overlaps[0])
	}
	atLast()
	t.Logf("%d holds of processes; from a release to the next grant, with a dead process in the queue: p50, p99, max %s; from the death of a holder "+
		"with a lease of %v: %s", len(c.holds), spread(waiting), diesWith, spread(holding))
	matrix.Cell{
		Strategy: "single", Fault: "waiters and holders killed", Where: "redis-server", Trials: len(c.holds), Violations: len(overlaps),
		Command: command(t.Name()),
	}.Report(t)
}

const diesWith = time.Second // the TTL of the processes

// TestProcess is not a test. It is the code of the processes.
func TestProcess(t *testing.T) {
	if job := os.Getenv(workerEnv); job != "" {
		runWorker(t, job)
		return
	}
	if orders := os.Getenv(programEnv); orders != "" {
		runProgram(t, orders)
		return
	}
	addr, with := os.Getenv("LOCKSTEP_TEST_REDIS"), os.Getenv("LOCKSTEP_TEST_LIBRARY")
	if addr == "" {
		return
	}
	i, err := strconv.Atoi(with)
	if err != nil {
		t.Fatal(err)
	}
	locks := locker.New(single.New(libraries[i].dial(t, addr).store), locker.WithTTL(diesWith))
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() { waitAndReport(t, locks) })
	}
	all.Wait()
}

// waitAndReport runs until the process is killed. It prints each grant, and each hold when it ends.
func waitAndReport(t *testing.T, locks *locker.Client) {
	for {
		l, err := locks.Lock(t.Context(), "crowd")
		if err != nil {
			fmt.Println("error", err)
			return
		}
		start := time.Now().UnixNano()
		fmt.Println("grant", start)
		time.Sleep(5 * time.Millisecond)
		if l.Context().Err() == nil { // otherwise the machine was too busy, and the lock is lost
			fmt.Println("hold", start, time.Now().UnixNano())
		}
		_ = l.Unlock(context.Background()) // the lock may have been lost
	}
}

// A crowd is all processes.
type crowd struct {
	t         *testing.T
	server    *redistest.Server
	processes [4]*exec.Cmd
	readers   [4]chan struct{} // closed when all output of the process is read
	grants    chan grant       // dropped while nobody receives

	mu    sync.Mutex
	holds []history.Hold
}

// A grant is one that a process has printed.
type grant struct {
	process int
	at      time.Time
}

func (c *crowd) start(i int) {
	cmd, _, out := child.Start(c.t, "LOCKSTEP_TEST_REDIS="+c.server.Addr(), fmt.Sprint("LOCKSTEP_TEST_LIBRARY=", i))
	c.processes[i], c.readers[i] = cmd, make(chan struct{})
	go c.read(i, out, c.readers[i])
}

func (c *crowd) read(i int, out *bufio.Reader, end chan struct{}) {
	defer close(end)
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			return
		}
		var start, over int64
		switch {
		case strings.HasPrefix(line, "error"):
			c.t.Errorf("process %d: %s", i, line)
		case scan(line, "grant %d", &start):
			select {
			case c.grants <- grant{i, time.Unix(0, start)}:
			default:
			}
		case scan(line, "hold %d %d", &start, &over):
			c.mu.Lock()
			c.holds = append(c.holds, history.Hold{Key: "crowd", Who: fmt.Sprint("process ", i), Start: start, End: over})
			c.mu.Unlock()
		}
	}
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

func (c *crowd) kill(i int) {
	_ = c.processes[i].Process.Kill()
	<-c.readers[i] // before Wait, which closes the pipe
	_ = c.processes[i].Wait()
}

// killWaiting kills a process while the test holds the lock and all processes wait. It returns the
// time from the release to the next grant.
func (c *crowd) killWaiting(ours *locker.Client, victim int) time.Duration {
	l, err := ours.Lock(c.t.Context(), "crowd", locker.WithWait(patience))
	if err != nil {
		c.t.Error(err)
		return 0
	}
	eventually(c.t, "all processes wait", func() bool { return c.queued() >= len(c.processes) })
	c.kill(victim)
	released := time.Now()
	if err := l.Unlock(context.Background()); err != nil {
		c.t.Error(err)
	}
	return c.next(released).at.Sub(released)
}

// killHolding kills a process as soon as it has the lock, and returns the time to the next grant.
// The process may have released the lock just before.
func (c *crowd) killHolding(victim int) time.Duration {
	after := time.Now()
	for {
		g := c.next(after)
		if c.t.Failed() {
			return 0
		}
		if g.process == victim {
			break
		}
	}
	c.kill(victim)
	died := time.Now()
	return c.next(died).at.Sub(died)
}

// next returns the first grant after an instant.
func (c *crowd) next(after time.Time) grant {
	deadline := time.After(patience)
	for {
		select {
		case g := <-c.grants:
			if g.at.After(after) {
				return g
			}
		case <-deadline:
			c.t.Errorf("nobody took the lock for %v", patience)
			return grant{}
		}
	}
}

// queued returns the length of the queue. A waiter that was killed stays in it until it is the
// head.
func (c *crowd) queued() int {
	reply, err := c.server.Do("ZCARD", "{crowd}:\x00queue")
	if err != nil {
		c.t.Error(err)
		return 0
	}
	n, _ := reply.(int64)
	return int(n)
}
