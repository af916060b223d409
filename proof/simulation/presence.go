package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// presence is the time in which a token was on a node, by the states of the node.
type presence struct {
	node  int
	token string
	Span
}

// presences returns those of all tokens under key. A node that grants nothing counts like one that
// has the token: see blocked.
func (h *History) presences(key string) []presence {
	var found []presence
	for node := 1; node <= h.Strategy.Nodes; node++ {
		states := h.statesOf(node, key)
		if h.Strategy.Shared {
			found = append(found, sharedPresences(node, states)...)
			continue
		}
		for i, s := range states {
			if !s.Is || s.For != "" { // a reservation is not a hold
				continue
			}
			to := s.Ends
			if i+1 < len(states) {
				to = min(to, states[i+1].At)
			}
			if last := len(found) - 1; last >= 0 && found[last].node == node && found[last].token == s.After && found[last].To == s.At {
				found[last].To = to
				continue
			}
			found = append(found, presence{node, s.After, Span{s.At, to}})
		}
	}
	return found
}

func (h *History) statesOf(node int, key string) []*State {
	var states []*State
	for _, s := range h.States {
		if s.Node == node && s.Key == key {
			states = append(states, s)
		}
	}
	return states
}

// sharedPresences follows the answers of the node to each hold, since one key has several.
func sharedPresences(node int, states []*State) []presence {
	found, _ := follow(node, states)
	return found
}

// follow also returns the states in which the last hold has left and the key still exists.
func follow(node int, states []*State) (found []presence, empty []*State) {
	alive := map[string]*presence{}
	end := func(token string, at time.Duration) {
		if p := alive[token]; p != nil {
			p.To = min(p.To, at)
			found = append(found, *p)
			delete(alive, token)
		}
	}
	for _, s := range states {
		for _, token := range sortedKeys(alive) {
			if s.Op == "forgets" || alive[token].To <= s.At {
				end(token, s.At)
			}
		}
		switch {
		case s.Op == "jumps":
			for _, p := range alive {
				p.To -= s.Shift
			}
		case s.OK && (s.Op == "Enter" || s.Op == "Renew"):
			if alive[s.Token] == nil {
				alive[s.Token] = &presence{node, s.Token, Span{From: s.At}}
			}
			alive[s.Token].To = max(alive[s.Token].To, s.At+s.TTL)
		case s.OK && s.Op == "Leave":
			if end(s.Token, s.At); len(alive) == 0 && s.Is {
				empty = append(empty, s)
			}
		}
	}
	for _, token := range sortedKeys(alive) {
		end(token, Never)
	}
	return found, empty
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// blocked returns when a node granted nothing, as in quarantine.
func (h *History) blocked(key string) []presence {
	var found []presence
	for _, s := range h.States {
		if s.Key == key && s.BlockedUntil > s.Blocked {
			found = append(found, presence{node: s.Node, Span: Span{s.Blocked, s.BlockedUntil}})
		}
	}
	return found
}

// belief returns when the holder believed that it held the lock: until its lease ended by what it
// knew, until it began to unlock, learned of the loss, or died. If the context of the lock ended
// for another reason, the holder learns nothing more and looks at the lease.
func (h *History) belief(d *Hold) Span {
	last := h.last(d)
	end := min(last.expires, d.Unlocking)
	if d.Lost == "" {
		end = min(end, max(h.wallEnd(d.Client, last), d.Ended))
	}
	if d.Lost != "" && d.Lost != locker.LostMaxHold {
		end = min(end, d.Ended)
	}
	end = min(end, h.death(d.Client))
	return Span{d.Granted, max(end, d.Granted)}
}

// lowest returns the least number of spans that cover an instant of within, and the first such
// instant.
func lowest(within Span, spans []Span) (count int, at time.Duration) {
	if within.From >= within.To {
		return len(spans), within.From
	}
	instants := []time.Duration{within.From}
	for _, s := range spans {
		if s.To > within.From && s.To < within.To {
			instants = append(instants, s.To)
		}
	}
	slices.Sort(instants)
	count = len(spans) + 1
	for _, at0 := range instants {
		n := 0
		for _, s := range spans {
			if s.From <= at0 && at0 < s.To {
				n++
			}
		}
		if n < count {
			count, at = n, at0
		}
	}
	return count, at
}

// merge joins spans that touch.
func merge(spans []Span) []Span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	var merged []Span
	for _, s := range spans {
		if last := len(merged) - 1; last >= 0 && s.From <= merged[last].To {
			merged[last].To = max(merged[last].To, s.To)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// without returns whole without spans. Both are merged.
func without(whole, spans []Span) []Span {
	var rest []Span
	for _, w := range whole {
		from := w.From
		for _, s := range spans {
			if s.To <= from || s.From >= w.To {
				continue
			}
			if s.From > from {
				rest = append(rest, Span{from, s.From})
			}
			from = s.To
		}
		if from < w.To {
			rest = append(rest, Span{from, w.To})
		}
	}
	return rest
}
