package main

import (
	"fmt"
	"time"
)

// An outcome is what a cell says.
type outcome string

const (
	safe      outcome = "safe"         // others were refused for as long as someone held it
	free      outcome = "free"         // the next one got it after its owner had died
	twoHold   outcome = "two hold"     // two had a lease at once
	twoWork   outcome = "two work"     // the leases were apart, but who held first went on, and its late write landed
	fencedOff outcome = "fenced"       // as one of those, but the resource refused the late write
	repaired  outcome = "repaired"     // locked for ever, until a waiter of the recipe came
	forEver   outcome = "for ever"     // locked without an end
	untold    outcome = "not told"     // the lease had ended, and the holder's context did not say so
	none      outcome = "–"            // there is no such thing with this strategy
	skipped   outcome = "not run"      // it can't be made to happen here
	unclear   outcome = "undecided"    // the history shows nothing: a fault of the scenario
	failed    outcome = "not produced" // an error kept the scenario from happening
)

// isAnomaly tells whether there is something to reproduce.
func (o outcome) isAnomaly() bool {
	switch o {
	case safe, free, none, skipped:
		return false
	}
	return true
}

// verdict says what the record shows, and how much of it.
func (r *record) verdict() (outcome, string) {
	leases, works := r.leases(), r.works()
	switch {
	case r.untold:
		return untold, "the lease had ended, and the context did not say so"
	case len(leases) > 0 && r.late == refusedByFence:
		return fencedOff, fmt.Sprintf("%s; the late write of %s was refused", beside(leases, "had a lease"), leases[0].first)
	case len(leases) > 0:
		return twoHold, beside(leases, "had a lease")
	case len(works) > 0 && r.late == refusedByFence:
		return fencedOff, fmt.Sprintf("%s, whose lease had ended; the late write was refused", beside(works, "worked"))
	case len(works) > 0:
		return twoWork, fmt.Sprintf("%s, whose lease had ended; the late write landed", beside(works, "worked"))
	case r.next == neverGotIt:
		return forEver, "the value under the key has no expiry, and whoever asked was refused"
	case r.next == gotItAfterRepair:
		return repaired, fmt.Sprintf("no expiry; a waiter of the recipe got it %v after it came", tenths(r.after))
	case r.next == gotIt:
		if r.after == 0 {
			return free, "whoever came later got it"
		}
		return free, fmt.Sprintf("the next one got it %v after its owner's end", tenths(r.after))
	case r.keptOut():
		return safe, "others were refused for as long as it was held"
	}
	return unclear, "nobody was refused while it was held, and no two held it"
}

// beside tells of the longest of the spans.
func beside(spans []span, did string) string {
	longest := spans[0]
	for _, s := range spans {
		if s.length() > longest.length() {
			longest = s
		}
	}
	return fmt.Sprintf("%s %s for %v beside %s", longest.second, did, longest.length().Round(time.Millisecond), longest.first)
}

func tenths(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
