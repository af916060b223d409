package simulation

import "fmt"

// An Invariant is a rule that must hold, by its name in proof/promises.md.
type Invariant string

// The invariants. Each has a checker in a file of its own.
const (
	ME      Invariant = "ME"
	OWN     Invariant = "OWN"
	LEASE   Invariant = "LEASE"
	TRI     Invariant = "TRI"
	NOGHOST Invariant = "NOGHOST"
	LOSS    Invariant = "LOSS"
	MONO    Invariant = "MONO"
	FENCE   Invariant = "FENCE"
	LIVE    Invariant = "LIVE"
	ORDER   Invariant = "ORDER"
	ONCE    Invariant = "ONCE"
	ALL     Invariant = "ALL"
	SEM     Invariant = "SEM"
	RW      Invariant = "RW"
	RWFENCE Invariant = "RW-FENCE"
	RWORDER Invariant = "RW-ORDER"
	SEMLIVE Invariant = "SEM-LIVE"
	SLOT    Invariant = "SLOT"
)

// Invariants are all of them.
func Invariants() []Invariant {
	return []Invariant{ME, OWN, LEASE, TRI, NOGHOST, LOSS, MONO, FENCE, LIVE, ORDER, ONCE, ALL, SEM, RW, RWFENCE, RWORDER, SEMLIVE, SLOT}
}

var checkers = map[Invariant]func(*History) []string{
	ME: checkExclusion, OWN: checkOwner, LEASE: checkLease, TRI: checkOutcomes, NOGHOST: checkGhosts,
	LOSS: checkLoss, MONO: checkExtensions, FENCE: checkFences, LIVE: checkLiveness, ORDER: checkOrder,
	ONCE: checkOnce, ALL: checkAll,
	SEM: checkPermits, RW: checkReadersAndWriters, RWFENCE: checkEpochs,
	RWORDER: checkShareOrder, SEMLIVE: checkRoom, SLOT: checkSlots,
}

// A Violation is one finding of a checker, as a sentence.
type Violation struct {
	Invariant Invariant
	Says      string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Invariant, v.Says) }

// Check returns all violations, in the order of Invariants.
func (h *History) Check() []Violation {
	var found []Violation
	for _, name := range Invariants() {
		for _, says := range checkers[name](h) {
			found = append(found, Violation{name, says})
		}
	}
	return found
}
