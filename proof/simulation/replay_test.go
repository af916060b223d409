package simulation

import (
	"cmp"
	"runtime"
	"slices"
	"testing"
	"weak"
)

// TestReplay prints the history of one schedule, what it violates, and whether its cell may violate
// that. It never fails for a violation: TestWhatEachStrategyPromisesUnderEachFault judges. A
// failure of another test prints the flags to use here. Without flags it plays an example.
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
			t.Logf("%s\n\tsome schedules of %s under %s must violate that", v, name, fault)
		case slices.Contains(e.MayBreak, v.Invariant):
			t.Logf("%s\n\tschedules of %s under %s may violate that: it is not promised", v, name, fault)
		default:
			t.Logf("%s\n\tNO schedule of %s under %s may violate that", v, name, fault)
		}
	}
	if len(found) == 0 {
		t.Logf("nothing is violated; some schedules of %s under %s must violate %v, and may %v", name, fault, e.Breaks, e.MayBreak)
	}
	if key, longest := h.Unavailable(); key != "" {
		t.Logf("%q was unavailable from %v to %v, for %v", key, longest.From, longest.To, longest.length())
	}
}

func TestAnotherSeedGivesAnotherHistory(t *testing.T) {
	schedule := Schedule{Strategy: Strategies()[0], Fault: None, Seed: 1}
	first := schedule.Run(t).String()
	schedule.Seed = 2
	if schedule.Run(t).String() == first {
		t.Error("two seeds give one history")
	}
}

// TestTheMemoryOfAScheduleIsFreed plays schedules in which locks are renewed and processes end with locks
// below locks. A hold that lives on until its Lock is garbage, while it leads to that Lock, would keep
// all of its schedule: a long campaign would run out of memory.
func TestTheMemoryOfAScheduleIsFreed(t *testing.T) {
	s, _ := StrategyNamed("single")
	var kept []weak.Pointer[History]
	const first = 120 // 148 has shown it
	for seed := range uint64(30) {
		kept = append(kept, weak.Make(Schedule{Strategy: s, Fault: Net, Seed: first + seed}.Run(t)))
	}
	for range 5 { // what is in a sync.Pool lives a little longer
		runtime.GC()
	}
	for i, h := range kept {
		if h.Value() != nil {
			t.Errorf("the history of seed %d is not garbage", first+i)
		}
	}
}
