package simulation

import "fmt"

// checkSlots is SLOT: each permit of a semaphore with slots has a number from 0 on, under its limit,
// and no two holders believe at one instant that they have the same number.
func checkSlots(h *History) []string {
	if !h.Slots {
		return nil
	}
	var found []string
	for i, d := range h.Holds {
		if d.Slot < 0 || d.Slot >= h.Strategy.Permits {
			found = append(found, fmt.Sprintf("%s has the slot %d of %d", d.Token, d.Slot, h.Strategy.Permits))
		}
		for _, other := range h.Holds[:i] {
			if other.Key == d.Key && other.Slot == d.Slot && other.Token != d.Token && overlap(h.belief(other), h.belief(d)) {
				found = append(found, fmt.Sprintf("%s and %s believe that they have the slot %d of %q", other.Token, d.Token, d.Slot, d.Key))
			}
		}
	}
	return found
}

func overlap(a, b Span) bool { return max(a.From, b.From) < min(a.To, b.To) }
