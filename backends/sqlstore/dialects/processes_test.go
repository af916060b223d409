package dialects_test

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/child"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

var kills = flag.Int("kills", 20, "how many processes to kill")

// Processes of one computer take one lock of SQLite in turns. One or the other is killed, at any moment,
// also in the middle of a statement, or stopped for longer than its lease. No two hold the lock at once, by
// their own leases, the numbers rise, and the file stays whole. The campaigns strike after a grant.
func TestProcessesThatAreKilledExcludeEachOther(t *testing.T) {
	t.Parallel()
	db := sqlite.fresh(t)
	c := &crew{grants: map[string]int{}}
	start := func() *exec.Cmd {
		cmd, _, out := child.Start(t, "DIALECT="+sqlite.name, "DSN="+db.dsn, "ROLE=holder")
		c.reading.Go(func() { c.read(cmd.Process.Pid, out) })
		return cmd
	}
	all := []*exec.Cmd{start(), start(), start(), start()}
	for n := range *kills {
		before := c.total()
		eventually(t, "the lock is taken", func() bool { return c.total() > before+20 })
		time.Sleep(rand.N(5 * time.Millisecond)) // to meet any moment
		i := rand.IntN(len(all))
		if n%2 == 0 {
			_ = all[i].Process.Kill()
			all[i] = start()
			continue
		}
		_ = all[i].Process.Signal(syscall.SIGSTOP)
		time.Sleep(holdTTL + 100*time.Millisecond)
		_ = all[i].Process.Signal(syscall.SIGCONT)
	}
	for _, cmd := range all {
		_ = cmd.Process.Kill()
	}
	c.reading.Wait()
	t.Logf("%d holds by %d processes, %d of which were killed in mid-run", len(c.holds), len(c.grants), (*kills+1)/2)
	for _, o := range history.Overlaps(c.holds) {
		t.Errorf("two holders at once: %v", o)
	}
	if len(c.wrong) > 0 {
		t.Errorf("processes said: %v", c.wrong[:min(10, len(c.wrong))])
	}
	c.wantRisingNumbers(t)
	var state string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&state); err != nil || state != "ok" {
		t.Errorf("the file is damaged: %v, %v", state, err)
	}
}

const holdTTL = 300 * time.Millisecond

// hold takes the lock all the time, and tells each hold: from after the grant to before the release, or to
// the end of the lease if that was earlier. All processes of a computer share the clock.
func hold(t *testing.T, db database) {
	locks := locker.New(fenced.New(db.store()), locker.WithTTL(holdTTL))
	for {
		l, err := locks.Lock(t.Context(), "k", locker.WithWait(patience))
		if err != nil {
			if !strings.Contains(err.Error(), "granted so late") { // else it was stopped just then
				fmt.Println("wrong:", err)
			}
			continue
		}
		start := time.Now()
		fmt.Println("hold", l.Fence(), start.UnixNano())
		select {
		case <-l.Context().Done():
		case <-time.After(rand.N(time.Millisecond)):
		}
		end := time.Now()
		if ends := l.Lease().Expires; ends.Before(end) {
			end = ends
		}
		fmt.Println("end", l.Fence(), end.UnixNano())
		_ = l.Unlock(t.Context()) // it may have been lost
	}
}

// crew collects what the processes say.
type crew struct {
	reading sync.WaitGroup

	mu     sync.Mutex
	holds  []history.Hold
	grants map[string]int // by process
	wrong  []string
}

func (c *crew) read(pid int, out *bufio.Reader) {
	var fence, start, end uint64
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		c.mu.Lock()
		switch n, _ := fmt.Sscanf(line, "hold %d %d", &fence, &start); {
		case n == 2:
			c.grants[fmt.Sprint(pid)]++
		case strings.HasPrefix(line, "end "):
			// A process that is stopped between its grant and its look at the clock starts after the end of
			// its lease: it has held nothing.
			if n, _ := fmt.Sscanf(line, "end %d %d", &fence, &end); n == 2 && start < end {
				c.holds = append(c.holds, history.Hold{Key: "k", Who: fmt.Sprint(fence, " of ", pid), Start: int64(start), End: int64(end)})
			}
		case strings.HasPrefix(line, "wrong"):
			c.wrong = append(c.wrong, line)
		}
		c.mu.Unlock()
	}
}

func (c *crew) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holds)
}

// wantRisingNumbers checks that a later hold has a greater number. Overlaps has sorted the holds.
func (c *crew) wantRisingNumbers(t *testing.T) {
	t.Helper()
	var last uint64
	for _, h := range c.holds {
		var n uint64
		if _, err := fmt.Sscan(h.Who, &n); err != nil || n <= last {
			t.Errorf("number %d came after %d: %v", n, last, err)
		}
		last = n
	}
}
