package laboratory

import (
	"fmt"
	"math"
	"time"
)

// An Outcome is the verdict of a cell.
type Outcome string

// The outcomes.
const (
	Safe        Outcome = "safe"         // others were refused for as long as someone held it
	Free        Outcome = "free"         // the next one got it after its owner had died
	TwoHold     Outcome = "two hold"     // two had a lease at once
	TwoWork     Outcome = "two work"     // the leases were apart, but who held first went on, and its late write landed
	Fenced      Outcome = "fenced"       // as one of those, but the resource refused the late write
	TooMany     Outcome = "too many"     // more had a lease at once than may
	RanTwice    Outcome = "ran twice"    // two hosts did the same job
	Late        Outcome = "late"         // a dead owner kept the lock after its lease had ended, since others renewed it
	Repaired    Outcome = "repaired"     // locked for ever, until a waiter of the recipe came
	ForEver     Outcome = "for ever"     // locked without an end
	NotTold     Outcome = "not told"     // the lease had ended, and the holder's context did not say so
	None        Outcome = "–"            // there is no such thing with this strategy
	NotRun      Outcome = "not run"      // it can't be made to happen here
	Undecided   Outcome = "undecided"    // the history shows nothing: a fault of the scenario
	NotProduced Outcome = "not produced" // an error kept the scenario from happening
)

// IsAnomaly tells whether there is something to reproduce.
func (o Outcome) IsAnomaly() bool {
	switch o {
	case Safe, Free, None, NotRun:
		return false
	}
	return true
}

// verdict says what the record shows, and how much of it.
func (r *Record) verdict() (Outcome, string) {
	leases, works := r.leases(), r.Works()
	switch {
	case r.untold:
		return NotTold, "the lease had ended, and the context did not say so"
	case r.ran == twice:
		return RanTwice, "the second host found the lock free again, and did the same job"
	case r.ran == once:
		return Safe, "the second host found the job done"
	case len(leases) > 0 && r.late == refusedByFence:
		return Fenced, fmt.Sprintf("%s; the late write of %s was refused", beside(leases, "had a lease"), leases[0].First)
	case len(leases) > 0 && r.limit() > 1:
		return TooMany, fmt.Sprintf("%s, and others; only %d may hold it at once", beside(leases, "had a lease"), r.limit())
	case len(leases) > 0:
		return TwoHold, beside(leases, "had a lease")
	case len(works) > 0 && r.late == refusedByFence:
		return Fenced, fmt.Sprintf("%s, whose lease had ended; the late write was refused", beside(works, "worked"))
	case len(works) > 0:
		return TwoWork, fmt.Sprintf("%s, whose lease had ended; the late write landed", beside(works, "worked"))
	case r.next == keptByTheDead:
		return Late, "the lease of the dead owner had ended, and nobody else held the lock, but whoever asked was refused"
	case r.next == neverGotIt:
		return ForEver, "the value under the key has no expiry, and whoever asked was refused"
	case r.next == gotItAfterRepair:
		return Repaired, fmt.Sprintf("no expiry; a waiter of the recipe got it %v after it came", tenths(r.After))
	case r.next == gotIt:
		if r.After == 0 {
			return Free, "whoever came later got it"
		}
		return Free, fmt.Sprintf("the next one got it %v after its owner's end", tenths(r.After))
	case r.keptOut():
		return Safe, "others were refused for as long as it was held"
	}
	return Undecided, "nobody was refused while it was held, and no two held it"
}

// limit is the least number of those who may hold the lock at once.
func (r *Record) limit() int {
	most := math.MaxInt
	for _, h := range r.Holds {
		most = min(most, h.most())
	}
	return most
}

// beside tells of the longest of the spans.
func beside(spans []Span, did string) string {
	longest := spans[0]
	for _, s := range spans {
		if s.Length() > longest.Length() {
			longest = s
		}
	}
	return fmt.Sprintf("%s %s for %v beside %s", longest.Second, did, longest.Length().Round(time.Millisecond), longest.First)
}

func tenths(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
