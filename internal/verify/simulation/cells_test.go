package simulation

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/matrix"
)

// A schedule makes much garbage and keeps little: collecting it less often saves a third of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// inCI is how many schedules of each cell there is time for; with those of this day 10,000 in all.
const inCI = 42

// inCI is how many of this fault's there is time for. Some faults vary another one.
func (f Fault) inCI() int {
	switch f {
	case Fast, TooFast, Split, OneWay:
		return max(inCI/slower/2, 1)
	}
	return inCI / slower
}

func TestWhatEachStrategyPromisesUnderEachFault(t *testing.T) {
	n := Fault.inCI
	if *schedules > 0 {
		n = func(Fault) int { return *schedules }
	}
	total := 0
	cells := Matrix(t, n, *seed, *onlyStrategy, *onlyFault)
	for _, c := range cells {
		total += c.Schedules
		t.Logf("%s\n\tthe worst: %s", c.String(), c.Replay)
		c.report(t)
	}
	t.Logf("%d schedules", total)
	if len(cells) == 0 {
		t.Errorf("no strategy %q or no fault %q", *onlyStrategy, *onlyFault)
	}
}

// report tells of a cell for docs/matrix.md.
func (c *Cell) report(t *testing.T) {
	var down time.Duration
	if c.Verdict == Unavailable {
		down = c.Unavailable
	}
	matrix.Cell{
		Strategy: c.Strategy.Name, Fault: string(c.Fault), Where: "simulation",
		Trials: c.Schedules, Violations: c.Violated[ME], Inverted: c.Violated[FENCE], Down: down, Command: c.Command,
	}.Report(t)
}
