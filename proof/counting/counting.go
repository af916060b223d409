// Package counting shows whether the guard of a store keeps a holder that has lost its lease from writing:
// processes that are stopped for longer than their lease increment a counter in the database of the locks.
package counting

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/matrix"
)

// TTL is that of the leases of the processes.
const TTL = 200 * time.Millisecond

const (
	patience    = 30 * time.Second // for a busy machine
	fewestStops = 5
	mostStops   = 1000
)

// Where names the store of a counter, and the folder of the module whose test calls Run, for the matrix.
type Where struct {
	Store, Module string
	Lease         time.Duration // how long a lease may last in the store, if that is longer than TTL
}

// Run starts four processes of TestProcess with the variables env, which call [Process]. It stops one or the
// other until they have made so many increments. counted reads the counter. Guarded, no increment may be
// lost. Unguarded, some must be, or the test shows nothing.
func Run(t *testing.T, where Where, guarded bool, increments int, counted func() int, env ...string) {
	t.Helper()
	var all []*process
	for range 4 {
		cmd, in, out := child.Start(t, env...)
		p := &process{cmd: cmd, in: in, told: make(chan string, 100000)}
		go p.read(out)
		all = append(all, p)
	}
	stops := time.NewTicker(50 * time.Millisecond)
	defer stops.Stop()
	stopped := 0
	// a stop loses something if it meets the holder between its read and its commit
	for told := 0; told < increments || stopped < fewestStops || !guarded && told <= counted() && stopped < mostStops; told = sum(all) {
		<-stops.C
		p := all[rand.IntN(len(all))]
		_ = p.cmd.Process.Signal(sigStop)
		time.Sleep(max(TTL, where.Lease) + 100*time.Millisecond)
		_ = p.cmd.Process.Signal(sigCont)
		stopped++
	}
	for _, p := range all {
		p.end(t)
	}
	total := sum(all)
	lost := total - counted()
	matrix.Cell{
		Strategy: map[bool]string{true: "single, with Guard", false: "single, without Guard"}[guarded], Fault: "holders stopped",
		Where: where.Store, Trials: total, Violations: max(lost, 0), Command: matrix.Again("-C "+where.Module+" .", t.Name()),
	}.Report(t)
	t.Logf("%d increments were committed and %d lost; %d stops of a process", total, lost, stopped)
	switch {
	case guarded && lost != 0:
		t.Errorf("%d of %d increments were lost", lost, total)
	case !guarded && lost == 0:
		t.Errorf("no increment was lost without a guard, so the test shows nothing")
	}
}

// Process increments until its input ends. increment takes the lock, commits one increment, and calls told
// then. If it fails, the next call makes another increment.
func Process(t *testing.T, increment func(ctx context.Context, told func()) error) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	for ctx.Err() == nil {
		_ = increment(ctx, func() { fmt.Println("+1") })
	}
	fmt.Println("end")
}

// A process counts until its input ends.
type process struct {
	cmd  *exec.Cmd
	in   io.Writer
	told chan string // a line for each increment that was committed
	n    int
	done bool
}

func (p *process) read(out io.Reader) {
	defer close(p.told)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.told <- lines.Text()
	}
}

func sum(all []*process) (n int) {
	for _, p := range all {
		for more := true; more; {
			select {
			case line, ok := <-p.told:
				more = ok
				p.hear(line)
			default:
				more = false
			}
		}
		n += p.n
	}
	return n
}

func (p *process) hear(line string) {
	switch line {
	case "+1":
		p.n++
	case "end":
		p.done = true
	}
}

// end lets the process finish its last increment.
func (p *process) end(t *testing.T) {
	t.Helper()
	_, _ = fmt.Fprintln(p.in, "end")
	limit := time.After(patience)
	for !p.done {
		select {
		case line, ok := <-p.told:
			if p.hear(line); !ok && !p.done {
				t.Fatal("a process ended before it was told to")
			}
		case <-limit:
			t.Fatal("a process does not end")
		}
	}
}
