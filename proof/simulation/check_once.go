package simulation

import "fmt"

// checkOnce is ONCE: after work that succeeded, nobody else is granted the lock before its minimum
// hold is over, less the margin of a lease. After work that failed, the release is sent at once. A
// lock that was lost promises neither.
func checkOnce(h *History) []string {
	var found []string
	for _, d := range h.Holds {
		if d.Keep == 0 || d.Lost != "" || d.UnlockSays == "lost" || d.Unlocking == Never {
			continue
		}
		switch d.Work {
		case Done:
			for _, next := range h.Holds {
				if next.Key == d.Key && next != d && !h.mayShare(d, next) && next.Granted > d.Granted && next.Granted < lease(d.T1, d.Keep) {
					found = append(found, fmt.Sprintf("%s was done and is kept for %v from %v on, and %s was granted at %v",
						d.Token, d.Keep, d.T1, next.Token, next.Granted))
				}
			}
		case Failed:
			if r := h.firstRelease(d); d.Unlocked != Never && d.UnlockSays == "done" && (r == nil || r.Sent > d.Unlocked) {
				found = append(found, fmt.Sprintf("%s has failed at %v, and was not released then", d.Token, d.Unlocking))
			}
		}
	}
	return found
}

// mayShare tells whether two holds may have the key together.
func (h *History) mayShare(a, b *Hold) bool {
	switch {
	case h.Strategy.RW:
		return !h.isWriter(a.Token) && !h.isWriter(b.Token)
	case h.Strategy.Nested:
		return a.Owner != "" && a.Owner == b.Owner
	}
	return h.Strategy.Permits > 1
}

// confirms tells whether Unlock has sent an extension: it asks whether the lock was held to the end
// of the work. It is sent before the minimum hold is over, when the release comes.
func confirms(d *Hold, e *Extension) bool {
	return d.Keep > 0 && e.Began >= d.Ended && e.Began < d.T1+d.Keep
}
