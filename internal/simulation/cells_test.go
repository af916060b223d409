package simulation

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/matrix"
)

// inCI is how many schedules of each cell there is time for: more than 10,000 in all.
const inCI = 45

func TestWhatEachStrategyPromisesUnderEachFault(t *testing.T) {
	n := *schedules
	if n == 0 {
		n = inCI / slower
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

// report tells of a cell for the matrix of docs/safety.md.
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
