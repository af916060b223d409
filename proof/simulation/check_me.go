package simulation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/proof/history"
)

// checkExclusion is ME: no two holds of one key overlap. A hold lasts from its grant for as long as
// its holder believes in it. The nested holds of one owner count as one.
func checkExclusion(h *History) []string {
	if h.Strategy.exclusion() != ME {
		return nil
	}
	var found []string
	for _, o := range history.Overlaps(h.exclusive()) {
		found = append(found, o.String())
	}
	return found
}

func (h *History) exclusive() []history.Hold {
	holds := make([]history.Hold, 0, len(h.Holds))
	for _, d := range h.Holds {
		// A lease that is handed over has several holders, one after the other.
		who := d.Worker + " by " + d.Token
		if h.Strategy.Nested && d.Owner != "" {
			who = d.Owner
		}
		if b := h.belief(d); b.From < b.To {
			holds = append(holds, history.Hold{Key: d.Key, Who: who, Start: int64(b.From), End: int64(b.To)})
		}
	}
	if !h.Strategy.Nested {
		return holds
	}
	return perOwner(holds)
}

// perOwner joins the holds of one owner that overlap.
func perOwner(holds []history.Hold) []history.Hold {
	slices.SortFunc(holds, func(a, b history.Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Who, b.Who), cmp.Compare(a.Start, b.Start))
	})
	var joined []history.Hold
	for _, d := range holds {
		if last := len(joined) - 1; last >= 0 && joined[last].Key == d.Key && joined[last].Who == d.Who && d.Start <= joined[last].End {
			joined[last].End = max(joined[last].End, d.End)
			continue
		}
		joined = append(joined, d)
	}
	return joined
}

// Unavailable returns the longest time in which a worker asked for a key, could reach the nodes,
// and nobody had it.
func (h *History) Unavailable() (key string, longest Span) {
	for _, k := range h.keys() {
		var wanted, had []Span
		for _, w := range h.Wants {
			if w.Key == k {
				asked := []Span{{w.Began, min(w.Ended, h.death(w.Client))}}
				wanted = append(wanted, without(asked, h.cutOffs(w.Client))...)
			}
		}
		for _, d := range h.Holds {
			if d.Key == k {
				b := h.belief(d)
				if d.Work == Done { // nobody else is to have it
					b.To = max(b.To, d.T1+d.Keep)
				}
				had = append(had, b)
			}
		}
		had = append(had, h.arrivals(k)...)
		for _, gap := range without(merge(wanted), merge(had)) {
			if gap.length() > longest.length() {
				key, longest = k, gap
			}
		}
	}
	return key, longest
}

// arrivals returns the moments when a take or an extension of a process that is dead takes effect on so many
// nodes that the others are no quorum: it was under way when the process was killed. The key is its
// owner's at that moment, and nobody cleans up, so the key is locked for a TTL from then.
func (h *History) arrivals(key string) (moments []Span) {
	nodes := map[string]map[int]bool{} // that have a token, or had it
	for _, s := range h.States {
		gives := slices.Contains(granting, s.Op) || s.Op == "ExpireIf" || s.Op == "Renew"
		if !gives || s.Key != key || !s.OK {
			continue
		}
		if nodes[s.Token] == nil {
			nodes[s.Token] = map[int]bool{}
		}
		nodes[s.Token][s.Node] = true
		client, _, _ := strings.Cut(s.Token, "w")
		if s.At > h.death(client) && len(nodes[s.Token]) > h.Strategy.Nodes-h.Strategy.Quorum {
			moments = append(moments, Span{s.At, s.At + 1})
		}
	}
	return moments
}

// cutOffs returns when the process could not reach a quorum. A fault that cuts it off from several
// nodes is one Stroke for each node, all at one instant.
func (h *History) cutOffs(client string) (spans []Span) {
	nodes := map[time.Duration]int{}
	for _, s := range h.Strokes {
		if s.Client != client {
			continue
		}
		if nodes[s.At]++; s.Node == 0 || nodes[s.At] > h.Strategy.Nodes-h.Strategy.Quorum {
			spans = append(spans, Span{s.At, s.Ends})
		}
	}
	return merge(spans)
}

// death returns when the process was killed.
func (h *History) death(client string) time.Duration {
	for _, d := range h.Deaths {
		if d.Client == client {
			return d.At
		}
	}
	return Never
}

func (h *History) keys() []string {
	keys := map[string]bool{}
	for _, w := range h.Wants {
		keys[w.Key] = true
	}
	return sortedKeys(keys)
}
