package simulation

import (
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Expectation is what a cell must show, by what the strategy says of itself. An invariant that is in neither list holds in
// every schedule.
type Expectation struct {
	Breaks   []Invariant   // in some schedule at least: or the experiment shows nothing
	MayBreak []Invariant   // not promised, and not seen in every run
	Within   time.Duration // nobody waits longer for a key that nobody has; 0: nothing is promised
	Early    bool          // some are told of a loss before Expires, by their wall clock; otherwise nobody is
}

// Expect says what s must show under f.
func Expect(s Strategy, f Fault) Expectation {
	if s.Legacy {
		return legacyExpectation(s, f)
	}
	e := Expectation{Early: f == Ahead}
	switch {
	case f == None || f == Partition || f == Ahead || f == Back || f == Fast || f == TooFast: // who is cut off is as good as dead, and nobody is sent a time
		e.Within = s.deadOwner()
	case s.toleratesOneDown() && (f == Pause || f == Reboot): // votes may be split again and again while a node is silent
		e.Within = 2 * s.deadOwner()
	}
	// a lock that ends early is one that was forgotten
	forgets := f == Restart || f == Forget || f == Clock || f == TooFast
	if forgets && s.Bears() < victims {
		e.Breaks = append(e.Breaks, ME, LEASE)
	}
	if s.Numbered && s.Nodes > 1 && s.Bears() < victims { // a single instance numbers by its clock, which goes on
		switch f {
		case Restart:
			e.Breaks = append(e.Breaks, FENCE)
		case Quarantine: // counters matter for longer than any quarantine
			e.MayBreak = append(e.MayBreak, FENCE)
		}
	}
	if f == Clock { // set back, it keeps the lock of a dead owner for longer
		e.MayBreak = append(e.MayBreak, LIVE)
	}
	return e
}

// victims is how many nodes of a quorum forget, at most.
const victims = 2

// deadOwner is how long nobody can have the lock of an owner who has just died. In order, it is offered after that to all who were
// before the first who comes: one dead, one cut off, and for each a place given up of which the node has not heard.
func (s Strategy) deadOwner() time.Duration {
	if s.InOrder || s.Mixed { // in a mix, to those whom fair lets in
		return deadOwner + 4*(backends.Reservation+aStep)
	}
	return deadOwner
}

func (s Strategy) toleratesOneDown() bool { return s.Nodes > s.Quorum }

// legacyExpectation: the recipes promise little, and not much is asked of them. Some anomalies are rare.
func legacyExpectation(s Strategy, f Fault) Expectation {
	e := Expectation{MayBreak: []Invariant{ME, LEASE, LIVE, NOGHOST}, Early: f == Ahead}
	switch {
	case f == Restart || f == Forget:
		e.Breaks = []Invariant{ME}
	case s.Name == "legacy-getset" && (f == Net || f == Pause || f == Clock || f == Ahead || f == Back), s.Name == "legacy-expire" && f == Clock:
		e.Breaks = []Invariant{ME}
	case s.Name == "legacy-expire" && f == Net, s.Name == "legacy-setbit" && f != Quarantine: // for ever
		e.Breaks = []Invariant{LIVE}
	}
	return e
}
