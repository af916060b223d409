package simulation

import "fmt"

// checkExtensions is MONO: an extension moves Expires only forward, counted from its own T1, and
// only if a quorum has extended. One that fails leaves Expires alone. The last Expires of a hold is
// the latest that its holder was told in time.
func checkExtensions(h *History) []string {
	var found []string
	for _, e := range h.Extensions {
		switch {
		case e.Answered == Never:
		case e.After < e.Before:
			found = append(found, fmt.Sprintf("the extension of %s at %v moved its end back from %v to %v", e.Token, e.Began, e.Before, e.After))
		case !e.Done && e.After != e.Before:
			found = append(found, fmt.Sprintf("the extension of %s at %v failed and moved its end from %v to %v", e.Token, e.Began, e.Before, e.After))
		case e.After > e.Before && e.After > lease(e.Began, e.TTL):
			found = append(found, fmt.Sprintf("the extension of %s by %v at %v moved its end to %v", e.Token, e.TTL, e.Began, e.After))
		case e.Done && !h.Strategy.Legacy && h.extendedOn(e) < h.Strategy.Quorum:
			found = append(found, fmt.Sprintf("the extension of %s at %v was done by %d nodes", e.Token, e.Began, h.extendedOn(e)))
		}
	}
	for _, d := range h.Holds {
		if d.Ended != Never && d.Final != h.expires(d) && d.Final != h.expiresBefore(d) {
			found = append(found, fmt.Sprintf("%s ended with Expires %v; its holder was told %v", d.Token, d.Final, h.expires(d)))
		}
	}
	return found
}

// extendedOn counts the nodes that have extended.
func (h *History) extendedOn(e *Extension) (nodes int) {
	for node := 1; node <= h.Strategy.Nodes; node++ {
		for _, m := range h.Messages {
			if (m.Op == "ExpireIf" || m.Op == "Renew") && m.Token == e.Token && m.Node == node && m.Kind == Yes && m.Sent >= e.Began && m.Answered <= e.Answered {
				nodes++
				break
			}
		}
	}
	return nodes
}
