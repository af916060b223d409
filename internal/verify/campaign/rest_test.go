package campaign

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/matrix"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// torture makes every experiment as large as it is meant to be.
var torture = os.Getenv("LOCKSTEP_TORTURE") == "1"

// command runs a test in the size that it has now.
func command(name string) string {
	c := matrix.Command("./internal/verify/campaign", name, "-v -timeout 1h")
	if torture {
		return "LOCKSTEP_TORTURE=1 " + c
	}
	return c
}

// patience is for what must happen on any machine, however busy. No lease in these experiments is as short, unless it
// says so: what is free within it was freed by someone.
const patience = 2 * time.Minute

// eventually looks again and again, and more and more seldom, whether something has come true, and tells when.
func eventually(t *testing.T, what string, holds func() bool) time.Time {
	t.Helper()
	deadline := time.Now().Add(patience)
	for pause := 5 * time.Millisecond; !holds(); pause = min(2*pause, 200*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(pause)
	}
	return time.Now()
}

// nothingRunsOn is called before an experiment. What it returns is called after, and wants all goroutines of Lockstep that were
// started meanwhile to end by themselves while the servers and the clients still live: nobody has to close a Locker or a
// locker.Client. No other test may run beside; what one before has left does not count.
func nothingRunsOn(t *testing.T) (atLast func()) {
	before := ours()
	return func() {
		t.Helper()
		var left []string
		for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			left = left[:0]
			for id, stack := range ours() {
				if _, old := before[id]; !old {
					left = append(left, stack)
				}
			}
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines run on %v after the last lock, one of them:\n%s", len(left), patience, left[0])
			}
		}
	}
}

// ours are the stacks that have a function of Lockstep in them, tests and test beds aside, by the number of the goroutine.
func ours() map[string]string {
	buf := make([]byte, 64<<20)
	stacks := map[string]string{}
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, pkg := range []string{"locker", "backends", "strategies", "internal/cleanup"} {
			if strings.Contains(stack, "github.com/lockstep-go/lockstep/"+pkg) {
				id, _, _ := strings.Cut(stack, " [")
				stacks[id] = stack
			}
		}
	}
	return stacks
}

// noConnectionStays wants the clients behind the proxies, which have been closed, to have closed all that they opened.
func noConnectionStays(t *testing.T, proxies []*redistest.Proxy) {
	t.Helper()
	eventually(t, "all connections of closed clients are closed", func() bool {
		return !slices.ContainsFunc(proxies, func(p *redistest.Proxy) bool { return p.Open() > 0 })
	})
}
