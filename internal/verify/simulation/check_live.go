package simulation

import (
	"fmt"
	"slices"
	"time"
)

// checkLiveness is LIVE: a dead owner's lock is free within its ttl, at the end nothing is left in anybody's way, and a waiter
// never sleeps beyond its polling cap, nor gives up before its limit.
func checkLiveness(h *History) []string {
	found := slices.Concat(h.sleepers(), h.quitters(), h.graves())
	if h.Strategy.Queued {
		found = append(found, h.idlers()...)
	}
	for _, s := range h.Remains {
		busy := s.Is
		if h.Strategy.busy != nil {
			busy = busy && h.Strategy.busy(s.After, h.began.Add(s.At))
		}
		if busy {
			found = append(found, fmt.Sprintf("at the end node %d still has %q under %q", s.Node, s.After, s.Key))
		}
	}
	return found
}

// sleepers are waiters of a Client that ask too rarely: those for one key and owner stand in line, and its head asks for all.
func (h *History) sleepers() []string {
	type line struct{ client, key, owner string }
	waits, busy := map[line][]Span{}, map[line][]Span{}
	for _, w := range h.Wants {
		l := line{w.Client, w.Key, w.Owner}
		for _, c := range w.Calls {
			if c.To = min(c.To, h.death(w.Client)); c.From < c.To {
				waits[l] = append(waits[l], c)
			}
		}
	}
	for _, a := range h.Attempts {
		if a.Waits {
			l := line{a.Client, a.Key, a.Owner}
			busy[l] = append(busy[l], Span{a.Began, a.Answered})
		}
	}
	for _, d := range h.Holds { // the head of a line is another one after a handover, and begins to wait anew
		l := line{d.Client, d.Key, d.Owner}
		busy[l] = append(busy[l], Span{d.Granted, d.Granted})
	}
	var found []string
	for l, calls := range waits {
		for _, gap := range without(merge(calls), merge(busy[l])) {
			if gap.length() > pollCap+time.Millisecond && gap.length() > h.longestSleep(l.client, l.key, gap)+time.Millisecond {
				found = append(found, fmt.Sprintf("waiters for %q in %s slept from %v to %v", l.key, l.client, gap.From, gap.To))
			}
		}
	}
	slices.Sort(found)
	return found
}

// quitters are calls with WithWait that ended without the lock before their limit, or long after
// it. No error of a node here is permanent, so none of them ends a wait.
func (h *History) quitters() []string {
	var found []string
	for _, w := range h.Wants {
		for _, c := range w.Limited {
			if c.Granted || h.death(w.Client) <= c.To || c.Over && c.length() >= c.For && c.length() <= c.For+answerGrace {
				continue
			}
			found = append(found, fmt.Sprintf("%s waits for %q from %v on, for up to %v, and gives up at %v, for that reason: %v",
				w.Worker, w.Key, c.From, c.For, c.To, c.Over))
		}
	}
	return found
}

// answerGrace is how long an attempt that is under way at the limit is waited for: see locker/attempt.go.
const answerGrace = 100 * time.Millisecond

// longestSleep is the cap on polling, and for a waiter that is woken in a queue what the Client allows.
func (h *History) longestSleep(client, key string, gap Span) time.Duration {
	if !h.Strategy.Queued {
		return pollCap
	}
	for _, l := range h.lines() {
		if l.client == client && l.key == key {
			return look(gap.To-l.around(gap.From).From, l.place(gap))
		}
	}
	return 0
}

// graves are locks of owners who are dead or have abandoned them that outlive their ttl, counted from the last message that
// may have made it longer.
func (h *History) graves() []string {
	if !h.Strategy.Tokens {
		return nil
	}
	var found []string
	longest := map[string]time.Duration{}
	for _, m := range h.Messages {
		longest[m.Token] = max(longest[m.Token], m.TTL)
	}
	for _, key := range h.keys() {
		for _, p := range h.presences(key) {
			last := p.From
			for _, m := range h.Messages {
				if m.Token == p.token && m.Node == p.node && m.TTL > 0 {
					for _, at := range m.Arrived {
						last = max(last, at)
					}
				}
			}
			if p.To > last+longest[p.token] {
				found = append(found, fmt.Sprintf("node %d kept %s until %v; its ttl ended at %v", p.node, p.token, p.To, last+longest[p.token]))
			}
		}
	}
	return found
}
