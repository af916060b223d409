package simulation

import (
	"slices"
	"testing"
)

// A discovery is a schedule of a run that was larger than those of each day, and what it has found.
type discovery struct {
	found    string
	strategy string
	fault    Fault
	seed     uint64
}

func (p discovery) violatesNothing(t *testing.T) {
	t.Helper()
	s, known := StrategyNamed(p.strategy)
	if !known {
		t.Fatalf("no strategy %q", p.strategy)
	}
	schedule := Schedule{Strategy: s, Fault: p.fault, Seed: p.seed}
	e := Expect(s, p.fault)
	for _, v := range schedule.Run(t).Check() {
		if !slices.Contains(e.Breaks, v.Invariant) && !slices.Contains(e.MayBreak, v.Invariant) {
			t.Errorf("%s: %s\n\treplay: %s", p.found, v, schedule.Command())
		}
	}
}

// Each of these has found a defect that is mended now.
func TestSchedulesThatHaveFoundADefectViolateNothing(t *testing.T) {
	for _, p := range []discovery{
		{"the release of a late grant waits behind one that hangs", "rwlock", Net, 440},                                          // NOGHOST
		{"the release of a late grant waits behind one that hangs", "semaphore-limits", Net, 440},                                // NOGHOST
		{"the release at the end of a minimum hold waits behind one that hangs", "redlock-5/4", Storm, 105},                      // NOGHOST
		{"a lock with a minimum hold is handed over when its work has failed", "semaphore-limits", Storm, 86},                    // ONCE
		{"a lock with a minimum hold is handed over when its work has failed", "semaphore-limits", Reboot, 604},                  // ONCE
		{"a waiter with a reservation is refused, since others with a larger limit came after it", "semaphore-limits", None, 6},  // SEMLIVE
		{"an Unlock whose ctx ends during the release after a loss does not tell the loss", "single", Ahead, 202611302046180064}, // LOSS
		{"an Unlock whose ctx ends during the release after a loss does not tell the loss", "fair", Ahead, 202611302046180064},   // LOSS
	} {
		p.violatesNothing(t)
	}
}

// In each of these the judge has seen a violation where there was none.
func TestSchedulesThatWereJudgedWronglyViolateNothing(t *testing.T) {
	for _, p := range []discovery{
		{"a line gives its position up when the ctx of its head ends during an attempt", "fair", TooFast, 202611301408510188},                  // ORDER
		{"a call becomes the head when the one before it is handed a hold that the node has forgotten", "single", Restart, 202611301408510121}, // LIVE
		{"reservations that are made at one instant are made in the order of the queue", "semaphore-limits", Reboot, 202611301504460411},       // RWORDER
	} {
		p.violatesNothing(t)
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
