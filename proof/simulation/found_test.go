package simulation

import (
	"slices"
	"testing"
)

// TestSchedulesThatHaveFoundADefectViolateNothing plays schedules of larger runs than those of each
// day. Each has found a defect that is mended now, and violated the invariant at that time.
func TestSchedulesThatHaveFoundADefectViolateNothing(t *testing.T) {
	for _, c := range []struct {
		defect   string
		violated Invariant
		strategy string
		fault    Fault
		seed     uint64
	}{
		{"the release of a late grant waits behind one that hangs", NOGHOST, "rwlock", Net, 440},
		{"the release of a late grant waits behind one that hangs", NOGHOST, "semaphore-limits", Net, 440},
		{"the release at the end of a minimum hold waits behind one that hangs", NOGHOST, "redlock-5/4", Storm, 105},
		{"a lock with a minimum hold is handed over when its work has failed", ONCE, "semaphore-limits", Storm, 86},
		{"a lock with a minimum hold is handed over when its work has failed", ONCE, "semaphore-limits", Reboot, 604},
		{"a waiter with a reservation is refused, since others with a larger limit came after it", SEMLIVE, "semaphore-limits", None, 6},
	} {
		s, known := StrategyNamed(c.strategy)
		if !known {
			t.Fatalf("no strategy %q", c.strategy)
		}
		schedule := Schedule{Strategy: s, Fault: c.fault, Seed: c.seed}
		e := Expect(s, c.fault)
		for _, v := range schedule.Run(t).Check() {
			if !slices.Contains(e.Breaks, v.Invariant) && !slices.Contains(e.MayBreak, v.Invariant) {
				t.Errorf("%s: %s\n\treplay: %s", c.defect, v, schedule.Command())
			}
		}
	}
}

// At the end of this schedule, a cleanup of a process that works no more has a call under way.
func TestAScheduleEndsAlsoWhileACallIsUnderWay(t *testing.T) {
	s, known := StrategyNamed("legacy-expire")
	if !known {
		t.Fatal("no strategy legacy-expire")
	}
	Schedule{Strategy: s, Fault: Storm, Seed: 202611300710240308}.Run(t)
}

// In this schedule a process is cut off and killed. Its take arrives when the cut is over, and keeps the key
// for a TTL from then.
func TestACallThatOutlivesItsProcessIsNoLackOfAvailability(t *testing.T) {
	s, known := StrategyNamed("reentrant")
	if !known {
		t.Fatal("no strategy reentrant")
	}
	h := Schedule{Strategy: s, Fault: Partition, Seed: 202611301106030076}.Run(t)
	within := Expect(s, Partition).Within
	if key, longest := h.Unavailable(); longest.length() > within {
		t.Errorf("%q was unavailable from %v to %v; expected at most %v", key, longest.From, longest.To, within)
	}
	if len(h.arrivals("b")) == 0 {
		t.Error("no call outlived its process, so the schedule shows nothing: find another seed")
	}
}
