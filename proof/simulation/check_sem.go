package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkPermits is SEM: at no instant do more holders believe that they have a permit than there
// are, and at no instant does the node have more.
func checkPermits(h *History) []string {
	if h.Strategy.Permits == 0 {
		return nil
	}
	var found []string
	for _, key := range h.keys() {
		var believed, stored []Span
		for _, d := range h.Holds {
			if d.Key == key {
				believed = append(believed, h.belief(d))
			}
		}
		for _, p := range h.presences(key) {
			stored = append(stored, p.Span)
		}
		if n, at := most(believed); n > h.Strategy.Permits {
			found = append(found, fmt.Sprintf("%d holders believe at %v that they have one of %d permits of %q", n, at, h.Strategy.Permits, key))
		}
		if n, at := most(stored); n > h.Strategy.Permits {
			found = append(found, fmt.Sprintf("the node has %d of %d permits of %q at %v", n, h.Strategy.Permits, key, at))
		}
	}
	return found
}

// most returns the greatest number of spans that have an instant in common, and the first such
// instant.
func most(spans []Span) (n int, at time.Duration) {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, s := range spans {
		if s.From < s.To {
			changes = append(changes, change{s.From, 1}, change{s.To, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now := 0
	for _, c := range changes {
		if now += c.by; now > n {
			n, at = now, c.at
		}
	}
	return n, at
}
