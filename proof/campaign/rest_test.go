package campaign

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

// command returns the command that runs a test in its present size.
func command(name string) string { return matrix.Again("./proof/campaign", name) }

// patience is how long a test waits for an event that must come, even on a busy machine. Leases in
// these experiments are longer, unless a test says otherwise, so a lock that becomes free within
// patience was released.
const patience = 2 * time.Minute

// eventually polls, with pauses that grow, until holds returns true, and returns when.
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

// nothingRunsOn is called before an experiment, and atLast after it. atLast waits until all
// goroutines of Lockstep that were started meanwhile have ended, while servers and clients still
// live: nobody has to close a Locker or a locker.Client. No other test may run at the same time.
// Goroutines that an earlier test has left do not count.
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
				t.Fatalf("%d goroutines still run %v after the last lock, one of them:\n%s", len(left), patience, left[0])
			}
		}
	}
}

// ours returns the stacks with a function of Lockstep, without tests and test beds, by goroutine.
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

// noConnectionStays waits until closed clients have closed all their connections to the proxies.
func noConnectionStays(t *testing.T, proxies []*redistest.Proxy) {
	t.Helper()
	eventually(t, "all connections of closed clients are closed", func() bool {
		return !slices.ContainsFunc(proxies, func(p *redistest.Proxy) bool { return p.Open() > 0 })
	})
}
