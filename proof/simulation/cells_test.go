//go:build !race

// Under the race detector fresh_test.go plays one schedule of each cell, which is all that it
// needs.

package simulation

import (
	"os"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

// inCI is how many schedules of each cell a normal run plays. In all they take 30 s of one CPU, and
// 55 s with fifteen. The known defects do not need more: TestEveryDefectIsFound plays up to 200 of
// each, until one finds it. New ones are found by new seeds, see fresh_test.go, and by make simulate.
const inCI = 8

// inTorture is the number with LOCKSTEP_TORTURE=1: the cells of docs/matrix.md.
const inTorture = 42

// played is how many schedules of a fault are played. Some faults vary another one and get half.
func played(f Fault) int {
	n := inCI
	if os.Getenv("LOCKSTEP_TORTURE") == "1" {
		n = inTorture
	}
	switch f {
	case Fast, TooFast, Split, OneWay, Far:
		return n / 2
	}
	return n
}

func TestWhatEachStrategyPromisesUnderEachFault(t *testing.T) {
	n := played
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

// report prints the cell for docs/matrix.md.
func (c *Cell) report(t *testing.T) {
	var down time.Duration
	if c.Verdict == Unavailable {
		down = c.Unavailable
	}
	matrix.Cell{
		Strategy: c.Strategy.Name, Fault: string(c.Fault), Where: "simulation",
		Trials: c.Schedules, Violations: c.Violated[c.Strategy.exclusion()], Inverted: c.Violated[FENCE] + c.Violated[RWFENCE], Down: down, Command: c.Command,
	}.Report(t)
}
