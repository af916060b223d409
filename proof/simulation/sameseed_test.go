//go:build !race

// Under the race detector goroutines take turns in other orders, so histories differ.

package simulation

import (
	"slices"
	"strings"
	"testing"
)

// TestTheSameSeedGivesTheSameHistory plays a schedule twice. Goroutines that wake at one instant
// run in an order that the seed does not decide. In a quorum, cleanups that begin at one instant
// then stand in another order in the queue of a node. So a schedule of a quorum has a few
// histories, and one of them must come a second time within ten.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	for _, s := range Strategies() {
		tries := 2
		if s.Nodes > 1 {
			tries = 10
		}
		for _, f := range Faults() {
			t.Run(s.Name+" under "+string(f), func(t *testing.T) {
				t.Parallel()
				for i := range uint64(max(*schedules, 1)) {
					comesAgain(t, Schedule{Strategy: s, Fault: f, Seed: *seed + i}, tries)
				}
			})
		}
	}
}

func comesAgain(t *testing.T, schedule Schedule, tries int) {
	var histories []string
	for range tries {
		history := schedule.Run(t).String()
		if slices.Contains(histories, history) {
			return
		}
		histories = append(histories, history)
	}
	t.Errorf("seed %d: %s", schedule.Seed, differ(histories[0], histories[1]))
}

// differ returns the first line in which two histories differ.
func differ(first, second string) string {
	a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + "\nor\n" + b[i]
		}
	}
	return "one is longer"
}
