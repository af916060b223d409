package simulation

import (
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Expectation is what a cell must show, by the documentation of its strategy. An invariant that is
// in neither list holds in every schedule.
type Expectation struct {
	Breaks   []Invariant   // violated in some schedule, or the experiment shows nothing
	MayBreak []Invariant   // not promised, and not violated in every run
	Within   time.Duration // the longest wait for a key that nobody has; 0: nothing is promised
	Early    bool          // a wall clock ends some holds before Expires; otherwise it ends none
}

// Expect says what s must show under f.
func Expect(s Strategy, f Fault) Expectation {
	if s.Legacy {
		return legacyExpectation(s, f)
	}
	e := Expectation{Early: f == Ahead}
	switch {
	// A process that is cut off counts as dead. No message has a time, so clocks do not matter.
	case f == None || f == Partition || f == Ahead || f == Back || f == Fast || f == TooFast:
		e.Within = s.deadOwner()
	case s.toleratesOneDown() && (f == Pause || f == Reboot): // while a node is silent, votes may be split several times
		e.Within = 2 * s.deadOwner()
	}
	// A node whose clock is fast ends a lock early, which is as if it forgot the lock.
	forgets := f == Restart || f == Forget || f == Clock || f == TooFast
	if forgets && s.Bears() < victims {
		e.Breaks = append(e.Breaks, s.exclusion(), LEASE)
		e.MayBreak = append(e.MayBreak, ONCE, SLOT)
	}
	// one instance numbers by its clock, which goes on
	if s.Numbered && s.Nodes > 1 && s.Bears() < victims {
		switch f {
		case Restart:
			e.Breaks = append(e.Breaks, FENCE)
		case Quarantine: // counters matter for longer than any quarantine
			e.MayBreak = append(e.MayBreak, FENCE)
		}
	}
	if f == Clock { // a node whose clock goes back keeps the lock of a dead holder for longer
		e.MayBreak = append(e.MayBreak, LIVE)
	}
	return e
}

// victims is how many nodes of a quorum forget, at most.
const victims = 2

// deadOwner is how long the lock of a holder that dies stays locked. In order, the node then
// reserves it for each waiter before the first that comes: one that is dead, one that is cut off,
// and for each of them one that has left without the node knowing it.
func (s Strategy) deadOwner() time.Duration {
	if s.InOrder || s.Mixed || s.Shared { // a mix has waiters of fair
		return deadOwner + 4*(backends.Reservation+aStep)
	}
	return deadOwner
}

func (s Strategy) toleratesOneDown() bool { return s.Nodes > s.Quorum }

// legacyExpectation is about the recipes, which promise little. Some of their anomalies are rare.
func legacyExpectation(s Strategy, f Fault) Expectation {
	e := Expectation{MayBreak: []Invariant{ME, LEASE, LIVE, NOGHOST, ONCE}, Early: f == Ahead}
	switch {
	case f == Restart || f == Forget:
		e.Breaks = []Invariant{ME}
	case s.Name == "legacy-getset" && (f == Net || f == Pause || f == Clock || f == Ahead || f == Back), s.Name == "legacy-expire" && f == Clock:
		e.Breaks = []Invariant{ME}
	case s.Name == "legacy-expire" && f == Net, s.Name == "legacy-setbit" && f != Quarantine: // for ever
		e.Breaks = []Invariant{LIVE}
	}
	if s.Name == "legacy-setbit" { // a holder that has died keeps one of several keys for ever
		e.MayBreak = append(e.MayBreak, ALL)
	}
	return e
}
