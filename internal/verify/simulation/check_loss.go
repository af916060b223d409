package simulation

import (
	"fmt"
	"time"
)

// checkLoss is LOSS: the lock's context ends no later than Expires, whatever the network does. If the wall clock says before that
// the lease is over, it ends with the next look at the clocks, from then on nobody extends the lock, and who unlocks it is told
// that it was lost.
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
			found = append(found, fmt.Sprintf("%s was over at %v by the wall clock, and its context ended at %v", d.Token, over, d.Ended))
		}
		if d.Unlocking > over && d.Unlocked != Never && d.UnlockSays != "lost" {
			found = append(found, fmt.Sprintf("%s was over at %v by the wall clock, and unlocked at %v: %s", d.Token, over, d.Unlocking, d.UnlockSays))
		}
		for _, e := range h.Extensions {
			if h.during(d, e) && e.Began > over {
				found = append(found, fmt.Sprintf("%s was over at %v by the wall clock, and an extension was sent at %v", d.Token, over, e.Began))
			}
		}
	}
	return found
}

// lookInterval is how often the Client looks at the clocks by itself.
const lookInterval = time.Second

// overEarly counts the holds that were lost to a wall clock.
func (h *History) overEarly() (n int) {
	for _, d := range h.Holds {
		if d.Lost != "" && d.Ended < d.Final && h.wallEnd(d.Client, h.last(d)) <= d.Ended {
			n++
		}
	}
	return n
}
