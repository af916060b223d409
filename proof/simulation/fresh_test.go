package simulation

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/race"
)

var fresh = flag.Int("fresh", 0, "how many schedules of each cell, with seeds of this second; 0: a few with seeds of this day")

// aDay returns how many fresh schedules of c a normal run plays. Under the race detector it plays no
// others, and those of a third of the cells, which are others each day: the detector finds a race in
// code that runs, whatever the order, and most cells of a strategy run the same code.
func aDay(c *Cell, day int) int {
	switch {
	case !race.Enabled:
		return 2
	case (c.row()+day)%3 == 0:
		return 1
	}
	return 0
}

// TestFreshSchedulesKeepWhatMustHold plays seeds that differ from day to day, and with -fresh from
// second to second: fixed seeds find the same each time, and miss the same. All runs of one day
// play the same schedules, so a change that fails fails again. A failure prints its seed. What a
// cell must violate is not asked: there are too few schedules for that.
func TestFreshSchedulesKeepWhatMustHold(t *testing.T) {
	now := time.Now().UTC()
	date := now.Format("20060102") + "000000"
	if *fresh > 0 {
		date = now.Format("20060102150405")
	}
	second, err := strconv.ParseUint(date, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	first := second * 10_000
	t.Logf("from -seed %d on", first)
	total := 0
	for _, c := range each(t, *onlyStrategy, *onlyFault, func(t *testing.T, s Strategy, f Fault) Cell {
		c := newCell(s, f)
		n := *fresh
		if n == 0 {
			n = aDay(&c, now.YearDay())
		}
		for c.Schedules < n {
			// the seed decides much, such as whether there are handovers
			c.play(t, first+uint64(c.row()))
		}
		c.judgeWhatMustHold(t)
		return c
	}) {
		total += c.Schedules
	}
	t.Logf("%d schedules", total)
}
