package simulation

import (
	"fmt"
	"slices"
	"time"
)

// checkLiveness is LIVE: the lock of a dead holder is free within its ttl, at the end no lock is
// left, and a waiter neither sleeps longer than its longest pause nor ends before its limit.
func checkLiveness(h *History) []string {
	found := slices.Concat(h.sleepers(), h.quitters(), h.graves())
	if h.Strategy.Queued {
		found = append(found, h.idlers()...)
	}
	for _, s := range h.Remains {
		busy := s.Is
		if h.Strategy.Busy != nil {
			busy = busy && h.Strategy.Busy(s.After, h.began.Add(s.At))
		}
		if busy {
			found = append(found, fmt.Sprintf("at the end node %d still has %q under %q", s.Node, s.After, s.Key))
		}
	}
	return found
}

// sleepers finds waiters of a Client that ask too rarely. The waiters for one key and owner stand
// in line, and its head asks for all.
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
	for _, d := range h.Holds { // after a handover the line has a new head, which begins to wait
		l := line{d.Client, d.Key, d.Owner}
		busy[l] = append(busy[l], Span{d.Granted, d.Granted})
	}
	var found []string
	for l, calls := range waits {
		for _, gap := range without(merge(calls), merge(busy[l])) {
			if gap.length() > pollCap+time.Millisecond && gap.length() > h.longestSleep(l.client, l.key, gap)+time.Millisecond {
				found = append(found, fmt.Sprintf("the waiters for %q in %s slept from %v to %v", l.key, l.client, gap.From, gap.To))
			}
		}
	}
	slices.Sort(found)
	return found
}

// quitters finds calls with WithWait that ended without the lock before their limit, or long after
// it. No error of a node here is permanent, so no error may end a wait.
func (h *History) quitters() []string {
	var found []string
	for _, w := range h.Wants {
		for _, c := range w.Limited {
			if c.Granted || h.death(w.Client) <= c.To || c.Over && c.length() >= c.For && c.length() <= c.For+answerGrace {
				continue
			}
			found = append(found, fmt.Sprintf("%s waits for %q from %v on, for up to %v, and stops at %v; with ErrWaitLimit: %v",
				w.Worker, w.Key, c.From, c.For, c.To, c.Over))
		}
	}
	return found
}

// answerGrace is how long Lock waits at its limit for an attempt under way: see locker/attempt.go.
const answerGrace = 100 * time.Millisecond

// longestSleep returns the longest pause of a waiter, which in a queue depends on its position.
func (h *History) longestSleep(client, key string, gap Span) time.Duration {
	if !h.Strategy.Queued {
		return pollCap
	}
	for _, l := range h.lines() {
		if l.client == client && l.key == key {
			return look(gap.To-l.around(gap.From).From, l.position(gap))
		}
	}
	return 0
}

// graves finds tokens that outlive their ttl, counted from the last message that may have extended
// it.
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
