package simulation

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// TestReplay prints the history of one schedule, and what it violates. Failures say with which flags; without any it is an
// example.
func TestReplay(t *testing.T) {
	name, fault := cmp.Or(*onlyStrategy, "single"), Fault(cmp.Or(*onlyFault, string(Net)))
	s, known := StrategyNamed(name)
	if !known || !slices.Contains(Faults(), fault) {
		t.Fatalf("no strategy %q, or no fault %q", name, fault)
	}
	h := Schedule{Strategy: s, Fault: fault, Seed: *seed}.Run(t)
	t.Log("\n" + h.String())
	for _, v := range h.Check() {
		t.Log(v)
	}
	key, longest := h.Unavailable()
	t.Logf("nobody could have %q from %v to %v, for %v", key, longest.From, longest.To, longest.length())
}

func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	for _, s := range Strategies() {
		for _, f := range Faults() {
			t.Run(s.Name+" under "+string(f), func(t *testing.T) {
				t.Parallel()
				for i := range uint64(max(*schedules, 3/slower, 1)) {
					schedule := Schedule{Strategy: s, Fault: f, Seed: *seed + i}
					first, second := schedule.Run(t).String(), schedule.Run(t).String()
					if first != second {
						t.Errorf("seed %d: %s", schedule.Seed, differ(first, second))
					}
				}
			})
		}
	}
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
