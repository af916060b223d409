package simulation

import (
	"fmt"
	"time"
)

// checkLoss is LOSS: the context of a lock ends no later than Expires, whatever the network does.
// If the lease ends earlier by the wall clock, the context ends at the next look at the clocks.
// From then on the lock is not extended, and Unlock returns ErrLost.
func checkLoss(h *History) []string {
	var found []string
	for _, d := range h.Holds {
		if d.Ended > d.Final || d.Ended == Never {
			found = append(found, fmt.Sprintf("%s expired at %v, and its context ended at %v", d.Token, d.Final, d.Ended))
		}
		over := h.wallEnd(d.Client, h.last(d))
		if over == Never {
			continue
		}
		if d.Ended > over+lookInterval {
			found = append(found, fmt.Sprintf("%s ended at %v by the wall clock, and its context ended at %v", d.Token, over, d.Ended))
		}
		if d.Unlocking > over && d.Unlocked != Never && d.UnlockSays != "lost" {
			found = append(found, fmt.Sprintf("%s ended at %v by the wall clock, and was unlocked at %v: %s", d.Token, over, d.Unlocking, d.UnlockSays))
		}
		for _, e := range h.Extensions {
			if h.during(d, e) && !confirms(d, e) && e.Began > over {
				found = append(found, fmt.Sprintf("%s ended at %v by the wall clock, and an extension was sent at %v", d.Token, over, e.Began))
			}
		}
	}
	return found
}

// lookInterval is the time between two looks of the Client at the clocks.
const lookInterval = time.Second

// overEarly counts the holds that ended by a wall clock before they expired.
func (h *History) overEarly() (n int) {
	for _, d := range h.Holds {
		if d.Lost != "" && d.Ended < d.Final && h.wallEnd(d.Client, h.last(d)) <= d.Ended {
			n++
		}
	}
	return n
}
