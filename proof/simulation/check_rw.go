package simulation

import (
	"fmt"
	"slices"
	"strings"
)

// checkReadersAndWriters is RW: while a writer believes that it holds a key, nobody else does; and
// while the node has the hold of a writer, it has no other.
func checkReadersAndWriters(h *History) []string {
	if !h.Strategy.RW {
		return nil
	}
	var found []string
	for _, key := range h.keys() {
		for what, holds := range map[string][]presence{
			"for their holders": func() (all []presence) {
				for _, d := range h.Holds {
					if d.Key == key {
						all = append(all, presence{0, d.Worker + " by " + d.Token, h.belief(d)})
					}
				}
				return all
			}(),
			"on the node": h.presences(key),
		} {
			for i, a := range holds {
				for _, b := range holds[i+1:] {
					together := a.node == b.node && a.From < b.To && b.From < a.To && a.From < a.To && b.From < b.To
					if together && (h.isWriter(a.token) || h.isWriter(b.token)) {
						found = append(found, fmt.Sprintf("%s, from %v to %v, and %s, from %v to %v, hold %q together %s", a.token, a.From, a.To, b.token, b.From, b.To, key, what))
					}
				}
			}
		}
	}
	return found
}

// checkEpochs is RW-FENCE: of two grants, one answered before the other was asked for, the later
// one has a greater number, or the same if both read. Readers that hold a key at the same time, and
// that the node has then, have the same number.
func checkEpochs(h *History) []string {
	if !h.Strategy.RW || !h.Strategy.Numbered {
		return nil
	}
	var found []string
	for _, a := range h.Attempts {
		for _, b := range h.Attempts {
			if a.Outcome != Granted || b.Outcome != Granted || a.Key != b.Key || a.Answered >= b.Began {
				continue
			}
			if b.Fence < a.Fence || b.Fence == a.Fence && (h.isWriter(a.Token) || h.isWriter(b.Token)) {
				found = append(found, fmt.Sprintf("%s was granted with the number %d, and later %s with %d", a.Token, a.Fence, b.Token, b.Fence))
			}
		}
	}
	fences := map[string]uint64{}
	for _, a := range h.Attempts {
		fences[a.Token] = a.Fence
	}
	for _, key := range h.keys() {
		reads := h.reading(key)
		for i, a := range reads {
			for _, b := range reads[i+1:] {
				if x, y := fences[a.token], fences[b.token]; a.From < b.To && b.From < a.To && x != y {
					found = append(found, fmt.Sprintf("%s and %s read together, with the numbers %d and %d", a.token, b.token, x, y))
				}
			}
		}
	}
	return found
}

// reading returns when a reader believed that it held the key, and the node had its hold.
func (h *History) reading(key string) (all []presence) {
	there := h.presences(key)
	for _, d := range h.Holds {
		for _, p := range there {
			if believed := h.belief(d); d.Key == key && d.Token == p.token && !h.isWriter(d.Token) {
				all = append(all, presence{p.node, p.token, Span{max(p.From, believed.From), min(p.To, believed.To)}})
			}
		}
	}
	return slices.DeleteFunc(all, func(p presence) bool { return p.From >= p.To })
}

// isWriter tells whether the process of a token, or of a worker, writes.
func (h *History) isWriter(token string) bool {
	client, _, _ := strings.Cut(token, "w")
	return writes(h.Seed, client)
}
