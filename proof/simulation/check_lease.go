package simulation

import (
	"fmt"
	"time"
)

// checkLease is LEASE: on enough nodes the key outlives Expires, which is T1 + ttl − (1 % + 2 ms)
// or earlier. Enough nodes are those that keep everyone else from a quorum, and a node that grants
// nothing is one of them. No lease is granted that has already ended. Expires has a monotonic
// reading; in a bubble no time has one.
func checkLease(h *History) []string {
	found := h.badLeases()
	if !h.Strategy.Tokens {
		return found
	}
	for _, key := range h.keys() {
		there, blocked := h.presences(key), h.blocked(key)
		for _, d := range h.Holds {
			if d.Key != key {
				continue
			}
			var spans []Span
			for node := 1; node <= h.Strategy.Nodes; node++ {
				var here []Span
				for _, p := range there {
					if p.node == node && p.token == d.Token {
						here = append(here, p.Span)
					}
				}
				for _, p := range blocked {
					if p.node == node {
						here = append(here, p.Span)
					}
				}
				spans = append(spans, merge(here)...)
			}
			if n, at := lowest(h.belief(d), spans); n < h.Strategy.enough() {
				found = append(found, fmt.Sprintf("%s is held until %v for its holder, and at %v only %d nodes keep everyone else out", d.Token, h.belief(d).To, at, n))
			}
		}
	}
	return found
}

func (h *History) badLeases() []string {
	var found []string
	for _, a := range h.Attempts {
		switch {
		case a.Outcome != Granted:
		case h.RealTime && !a.Monotonic:
			found = append(found, fmt.Sprintf("the Expires of %s has no monotonic reading: if the wall clock jumps back, the lease lives longer", a.Token))
		case h.RealTime: // a real clock has no exact instants to compare
		case a.Expires <= a.Answered:
			found = append(found, fmt.Sprintf("%s was granted at %v, and had expired at %v", a.Token, a.Answered, a.Expires))
		case a.T1 > a.Began || a.Expires > lease(a.Began, a.TTL):
			found = append(found, fmt.Sprintf("%s was asked for at %v, and its lease is from %v to %v", a.Token, a.Began, a.T1, a.Expires))
		}
	}
	return found
}

// lease is T1 + ttl − (1 % + 2 ms).
func lease(t1, ttl time.Duration) time.Duration { return t1 + ttl - ttl/100 - 2*time.Millisecond }
