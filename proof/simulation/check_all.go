package simulation

import (
	"fmt"
	"slices"
	"time"
)

// checkAll is ALL: a work runs with all its locks, each once. None of them is released before it
// has returned. The loss of one ends the ctx of the work. Where nothing goes wrong, no call waits
// for another one in a circle.
func checkAll(h *History) []string {
	var found []string
	for _, s := range h.Several {
		if s.Over && h.Fault == None && h.death(s.Client) == Never {
			found = append(found, fmt.Sprintf("%s waited for %v from %v to %v: a deadlock", s.Worker, s.Keys, s.Began, s.Ended))
		}
		if s.Called == Never {
			continue
		}
		if want := slices.Compact(slices.Sorted(slices.Values(s.Keys))); len(s.Tokens) != len(want) {
			found = append(found, fmt.Sprintf("%s wanted %v and has the locks %v", s.Worker, want, s.Tokens))
			continue
		}
		for i, token := range s.Tokens {
			d := h.holdAt(token, s.Worker, s.Called)
			switch {
			case d == nil || !slices.Contains(s.Keys, d.Key) || slices.Contains(s.Tokens[:i], token):
				found = append(found, fmt.Sprintf("%s works from %v on, and does not hold %s", s.Worker, s.Called, token))
			case d.Unlocking < s.Returned:
				found = append(found, fmt.Sprintf("%s works until %v, and %s was released at %v", s.Worker, s.Returned, token, d.Unlocking))
			case d.Lost != "" && d.Ended < s.Returned && s.CtxEnded > max(d.Ended, s.Called):
				found = append(found, fmt.Sprintf("%s was lost at %v, and the ctx of %s ended at %v", token, d.Ended, s.Worker, s.CtxEnded))
			}
		}
	}
	return found
}

// holdAt returns the hold that a worker had by a token at an instant. A lease that is handed over
// has several.
func (h *History) holdAt(token, worker string, at time.Duration) (last *Hold) {
	for _, d := range h.Holds {
		if d.Token == token && d.Worker == worker && d.Granted <= at {
			last = d
		}
	}
	return last
}
