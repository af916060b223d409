package simulation

import (
	"fmt"
	"slices"
	"time"
)

// checkGhosts is NOGHOST: after an acquire that failed or a release that was answered, the token is
// gone at once from nodes within reach, and by its TTL from others. A node is within reach if there
// was no fault of the node, of the process or of the messages about the token. The end of a
// caller's ctx is no excuse.
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
			limit, why := end.at+h.atOnce(), "at once"
			if last := h.shaken(p, end); last > 0 && last+probePause+atOnce > limit {
				limit, why = last+probePause+atOnce, "when the node is probed"
			}
			if last, trouble := h.troubled(p, end); trouble {
				limit, why = last+end.ttl+h.setBack(p, end), "with its ttl"
			}
			if p.To > limit {
				found = append(found, fmt.Sprintf("%s ended at %v and was on node %d until %v; it should have been gone %s, by %v", p.token, end.at, p.node, p.To, why, limit))
			}
		}
	}
	found = append(found, h.revenants()...)
	if h.Strategy.Shared && h.Fault != Clock { // a clock that goes back revives a hold that nobody has looked at since it ended
		found = append(found, h.emptyNests()...)
	}
	return found
}

// atOnce leaves time for a message or two, and for an attempt whose Client has stopped waiting.
const atOnce = 200 * time.Millisecond

// atOnce is longer where messages take long.
func (h *History) atOnce() time.Duration {
	if h.Fault == Far {
		return atOnce + 4*far
	}
	return atOnce
}

// probePause is how long a cleanup may wait for the next probe of a node that was out of reach.
const probePause = time.Second

// ending is when a token came to its end.
type ending struct {
	client string
	began  time.Duration
	at     time.Duration
	ttl    time.Duration // the longest that was ever requested
}

// over returns the tokens whose attempt failed or whose release was answered, in processes that
// live.
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
			if d.Work == Done {
				e.at = max(e.at, d.T1+d.Keep)
			}
		}
		if h.death(a.Client) != Never || a.Answered == Never {
			continue
		}
		over[a.Token] = e
	}
	return over
}

// shaken returns when a call to the node last failed before the token was gone, whatever the call:
// then the cleanups for that node wait for a probe. So they do after an Extend that keeps a key for
// its minimum hold and was not answered: the Client has one queue of cleanups for all nodes. It is 0
// if that was long before.
func (h *History) shaken(p presence, end ending) (last time.Duration) {
	for _, d := range h.Holds {
		if d.Client != end.client || d.Keep == 0 {
			continue
		}
		for _, e := range h.Extensions {
			if e.Token == d.Token && e.Began >= d.Unlocking && e.Says == "unknown" && e.Answered <= p.To && e.Answered+2*probePause >= end.at {
				last = max(last, e.Answered)
			}
		}
	}
	for _, m := range h.Messages {
		failed := m.Trouble != "" || m.Kind == Fails && m.Reply != ctxIsOver
		if m.Node == p.node && m.Client == end.client && failed && m.Answered <= p.To && m.Answered+2*probePause >= end.at {
			last = max(last, m.Answered)
		}
	}
	return last
}

// troubled tells whether the node was out of reach for the process of a token, and when the token
// may have been stored last.
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

// setBack returns by how much jumps of the node's clock may have made a ttl longer.
func (h *History) setBack(p presence, end ending) (by time.Duration) {
	for _, s := range h.States {
		if s.Node == p.node && s.Op == "jumps" && s.Shift < 0 && end.began <= s.At && s.At <= p.To {
			by -= s.Shift
		}
	}
	return by
}

// emptyNests finds keys that exist on a node although all their holds have left.
func (h *History) emptyNests() []string {
	var found []string
	for _, key := range h.keys() {
		_, empty := follow(1, h.statesOf(1, key))
		for _, s := range empty {
			found = append(found, fmt.Sprintf("%s was the last hold of %q and left at %v, and the key is still there", s.Token, key, s.At))
		}
	}
	return found
}

// revenants finds attempts without an answer that arrive late, and take the reservation of a waiter
// which has made a newer attempt: nobody holds the lock then, and it is locked until the TTL or the
// next cleanup. The second copy of a message does not count, since the first one was answered.
func (h *History) revenants() []string {
	var found []string
	for _, s := range h.States {
		if !s.OK || s.WasFor == "" || s.WasFor != s.Waiter {
			continue
		}
		older := h.attempt(s.Token)
		if older == nil || older.Outcome != Unknown || older.Answered >= s.At || h.doubled(s.Token) {
			continue
		}
		if newer := h.attemptOf(s.Waiter, older.Answered); newer != "" {
			found = append(found, fmt.Sprintf("%s had no answer until %v, and takes the reservation of %s at %v; the newer attempt is %s",
				s.Token, older.Answered, s.Waiter, s.At, newer))
		}
	}
	return found
}

// doubled tells whether the attempt was carried out twice.
func (h *History) doubled(token string) bool {
	return slices.ContainsFunc(h.Messages, func(m *Message) bool { return m.Token == token && m.Waiter != "" && len(m.Arrived) > 1 })
}

func (h *History) attempt(token string) *Attempt {
	i := slices.IndexFunc(h.Attempts, func(a *Attempt) bool { return a.Token == token })
	if i < 0 {
		return nil
	}
	return h.Attempts[i]
}

// attemptOf returns the token of the first attempt that a waiter sends at some time or later.
func (h *History) attemptOf(waiter string, from time.Duration) (token string) {
	for _, m := range h.Messages {
		if m.Waiter == waiter && m.Op != quits && m.Sent >= from {
			return m.Token
		}
	}
	return ""
}
