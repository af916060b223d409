package simulation

import (
	"fmt"
	"time"
)

// checkGhosts is NOGHOST: after a failed or cancelled acquire, or a release that was answered, the token is gone at once where
// nodes are reachable, and by its TTL elsewhere. Reachable is a node when nothing befell it, the process or the messages about
// the token; that a caller's ctx has ended is no excuse.
func checkGhosts(h *History) []string {
	if !h.Strategy.Tokens {
		return nil
	}
	var found []string
	over := h.over()
	for _, key := range h.keys() {
		for _, p := range h.presences(key) {
			end, gone := over[p.token]
			if !gone {
				continue
			}
			limit, why := end.at+atOnce, "at once"
			if h.Strategy.Sequential { // each node before may have been silent
				limit += time.Duration(h.Strategy.Nodes-1) * nodeLimit
			}
			if last := h.shaken(p, end); last > 0 && last+probePause+atOnce > limit {
				limit, why = last+probePause+atOnce, "when the node is probed"
			}
			if last, trouble := h.troubled(p, end); trouble {
				limit, why = last+end.ttl+h.setBack(p, end), "with its ttl"
			}
			if p.To > limit {
				found = append(found, fmt.Sprintf("%s was over at %v and on node %d until %v; it should have gone %s, by %v", p.token, end.at, p.node, p.To, why, limit))
			}
		}
	}
	if h.Strategy.Nested {
		found = append(found, h.emptyNests()...)
	}
	return found
}

// atOnce leaves time for a message or two, and for a Locker that is asked by a Client that has left.
const atOnce = 200 * time.Millisecond

// probePause is how long cleanups for a node that was out of reach may wait for the next probe.
const probePause = time.Second

// ending is when a token became worthless.
type ending struct {
	client string
	began  time.Duration
	at     time.Duration
	ttl    time.Duration // the longest it was ever asked for
}

// over are the tokens that nobody wants any more, unless their process was killed.
func (h *History) over() map[string]ending {
	held := map[string]*Hold{}
	for _, d := range h.Holds {
		held[d.Token] = d
	}
	longest := map[string]time.Duration{}
	for _, e := range h.Extensions {
		longest[e.Token] = max(longest[e.Token], e.TTL)
	}
	over := map[string]ending{}
	for _, a := range h.Attempts {
		e := ending{a.Client, a.Began, a.Answered, max(a.TTL, longest[a.Token])}
		if d := held[a.Token]; d != nil {
			if d.Unlocked == Never || d.UnlockSays != "done" {
				continue
			}
			e.at = d.Unlocked
		}
		if h.death(a.Client) != Never || a.Answered == Never {
			continue
		}
		over[a.Token] = e
	}
	return over
}

// shaken is when a process was last told by a node, before a token went, that a call has failed,
// whatever it was about: then the cleanups for that node wait for one probe at a time. It is 0 if
// that was long before.
func (h *History) shaken(p presence, end ending) (last time.Duration) {
	for _, m := range h.Messages {
		failed := m.Trouble != "" || m.Kind == Fails && m.Reply != ctxIsOver
		if m.Node == p.node && m.Client == end.client && failed && m.Answered <= p.To && m.Answered+2*probePause >= end.at {
			last = max(last, m.Answered)
		}
	}
	return last
}

// troubled tells whether a node was out of reach for who should remove a token, and when it may have been stored last.
func (h *History) troubled(p presence, end ending) (last time.Duration, trouble bool) {
	last = end.at
	for _, m := range h.Messages {
		if m.Node != p.node || m.Token != p.token {
			continue
		}
		trouble = trouble || m.Trouble != "" || m.Kind == Fails && m.Reply != ctxIsOver
		for _, at := range m.Arrived {
			if stores := m.Op != "DeleteIf" && m.Op != "Leave" && m.Op != "TxDeleteIf"; stores {
				last = max(last, at)
			}
		}
	}
	for _, s := range h.Strokes {
		trouble = trouble || s.between(end.client, p.node) && s.Ends+probePause >= end.began && s.At <= end.at+atOnce
	}
	return last, trouble
}

// setBack is how much longer the clock of the node may have made a ttl.
func (h *History) setBack(p presence, end ending) (by time.Duration) {
	for _, s := range h.States {
		if s.Node == p.node && s.Op == "jumps" && s.Shift < 0 && end.began <= s.At && s.At <= p.To {
			by -= s.Shift
		}
	}
	return by
}

// emptyNests are keys that lie on a node although all their holds have left.
func (h *History) emptyNests() []string {
	var found []string
	for _, key := range h.keys() {
		_, empty := follow(1, h.statesOf(1, key))
		for _, s := range empty {
			found = append(found, fmt.Sprintf("%s was the last to leave %q at %v, and it is still there", s.Token, key, s.At))
		}
	}
	return found
}
