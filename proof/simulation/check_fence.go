package simulation

import "github.com/lockstep-go/lockstep/proof/history"

// checkFences is FENCE: if one grant was answered before another was asked for, the later one has
// the greater number. All numbers are distinct. Under "mixed" some grants have no number.
func checkFences(h *History) []string {
	if !h.Strategy.Numbered || h.Strategy.RW { // a number there is that of an epoch: see checkEpochs
		return nil
	}
	var grants []history.Grant
	for _, a := range h.Attempts {
		if a.Outcome == Granted && (a.Fence > 0 || !h.Strategy.Mixed) {
			grants = append(grants, history.Grant{Key: a.Key, Who: a.Token, Asked: int64(a.Began), Answered: int64(a.Answered), Fence: a.Fence})
		}
	}
	var found []string
	for _, i := range history.Inversions(grants) {
		found = append(found, i.String())
	}
	return found
}
