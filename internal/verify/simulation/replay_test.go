package simulation

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// TestReplay prints the history of one schedule, what it violates, and whether its cell may show that. It only prints: whatever
// the schedule shows, it passes; TestWhatEachStrategyPromisesUnderEachFault is the judge. Failures say with which flags;
// without any it is an example.
func TestReplay(t *testing.T) {
	name, fault := cmp.Or(*onlyStrategy, "single"), Fault(cmp.Or(*onlyFault, string(Net)))
	s, known := StrategyNamed(name)
	if !known || !slices.Contains(Faults(), fault) {
		t.Fatalf("no strategy %q, or no fault %q", name, fault)
	}
	h := Schedule{Strategy: s, Fault: fault, Seed: *seed}.Run(t)
	t.Log("\n" + h.String())
	e, found := Expect(s, fault), h.Check()
	for _, v := range found {
		switch {
		case slices.Contains(e.Breaks, v.Invariant):
			t.Logf("%s\n\tsome schedules of %s under %s must show that", v, name, fault)
		case slices.Contains(e.MayBreak, v.Invariant):
			t.Logf("%s\n\tschedules of %s under %s may show that: it is not promised", v, name, fault)
		default:
			t.Logf("%s\n\tNO schedule of %s under %s may show that", v, name, fault)
		}
	}
	if len(found) == 0 {
		t.Logf("nothing is violated; some schedules of %s under %s must violate %v, and may %v", name, fault, e.Breaks, e.MayBreak)
	}
	key, longest := h.Unavailable()
	t.Logf("nobody could have %q from %v to %v, for %v", key, longest.From, longest.To, longest.length())
}

// Goroutines that wake at one instant run in an order that the seed does not decide, on a busy
// machine and under the race detector above all. In a quorum, cleanups that begin at one instant
// then stand in another order in the queue of a node. So a schedule of a quorum may go a few ways,
// and one of them must come a second time within ten; under the race detector quorums are not
// compared.
func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	for _, s := range Strategies() {
		tries := 2
		if s.Nodes > 1 {
			tries = 10
		}
		if slower > 1 && s.Nodes > 1 {
			continue
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

// differ is the first line that does.
func differ(first, second string) string {
	a, b := strings.Split(first, "\n"), strings.Split(second, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + "\nor\n" + b[i]
		}
	}
	return "one is longer"
}

func TestAnotherSeedGivesAnotherHistory(t *testing.T) {
	schedule := Schedule{Strategy: Strategies()[0], Fault: None, Seed: 1}
	first := schedule.Run(t).String()
	schedule.Seed = 2
	if schedule.Run(t).String() == first {
		t.Error("two seeds give one history")
	}
}
