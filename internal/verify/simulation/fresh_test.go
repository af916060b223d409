//go:build !race

package simulation

import (
	"flag"
	"strconv"
	"testing"
	"time"
)

var fresh = flag.Int("fresh", 0, "how many schedules of each cell with seeds of this second; 0: a few with seeds of this day")

// aDay is how many fresh schedules of each cell a normal run plays.
const aDay = 2

// Fixed seeds find the same every time, and miss the same. These differ from day to day, and with
// -fresh from second to second. All runs of one day play the same schedules, so that a change that
// fails by them fails again. What fails prints its seed. What a cell must violate is not asked for:
// there are too few schedules for that.
func TestFreshSchedulesKeepWhatMustHold(t *testing.T) {
	n, date := aDay, time.Now().UTC().Format("20060102")+"000000"
	if *fresh > 0 {
		n, date = *fresh, time.Now().UTC().Format("20060102150405")
	}
	second, err := strconv.ParseUint(date, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	first := second * 10_000
	t.Logf("%d schedules of each cell, from -seed %d on", n, first)
	total := 0
	for _, c := range each(t, *onlyStrategy, *onlyFault, func(t *testing.T, s Strategy, f Fault) Cell {
		c := newCell(s, f)
		for c.Schedules < n {
			c.play(t, first)
		}
		c.judgeWhatMustHold(t)
		return c
	}) {
		total += c.Schedules
	}
	t.Logf("%d schedules", total)
}
