package simulation

import "fmt"

// checkLoss is LOSS: the lock's context ends no later than Expires, whatever the network does.
func checkLoss(h *History) []string {
	var found []string
	for _, d := range h.Holds {
		if d.Ended > d.Final || d.Ended == Never {
			found = append(found, fmt.Sprintf("%s expired at %v, and its context ended at %v", d.Token, d.Final, d.Ended))
		}
	}
	return found
}
