package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A clientLine is the calls of one Client that wait for a key: its head asks for all of them, and has their place in the queue
// of the node.
type clientLine struct {
	client, key string
	calls       []Span // of Lock, merged
	asks        []*Message
}

// lines are those of strategies whose owners don't matter.
func (h *History) lines() (all []*clientLine) {
	type who struct{ client, key string }
	byWho := map[who]*clientLine{}
	for _, w := range h.Wants {
		l := byWho[who{w.Client, w.Key}]
		if l == nil {
			l = &clientLine{client: w.Client, key: w.Key}
			byWho[who{w.Client, w.Key}] = l
			all = append(all, l)
		}
		for _, c := range w.Calls {
			c.To = min(c.To, h.death(w.Client))
			l.calls = append(l.calls, c)
		}
	}
	for _, l := range all {
		l.calls = merge(l.calls)
	}
	waits := map[string]bool{}
	for _, a := range h.Attempts {
		waits[a.Token] = a.Waits
	}
	for _, m := range h.Messages {
		if !waits[m.Token] {
			continue
		}
		if l := byWho[who{m.Client, m.Key}]; l != nil && slices.Contains(minding, m.Op) {
			l.asks = append(l.asks, m)
		}
	}
	return all
}

// around is the time in which the line was not empty, about an instant.
func (l *clientLine) around(at time.Duration) Span {
	for _, c := range l.calls {
		if c.From <= at && at <= c.To {
			return c
		}
	}
	return Span{at, at}
}

// place is the last that the line may have been told before an instant, and in it.
func (l *clientLine) place(in Span) (place int) {
	for _, m := range l.asks {
		switch {
		case m.Answered <= in.From && m.Kind == No:
			place = m.Position
		case m.Answered <= in.To && m.Kind == No:
			place = max(place, m.Position)
		}
	}
	return place
}

// waiter is who stands in the queue for the line.
func (l *clientLine) waiter(at time.Duration) (name string) {
	for _, m := range l.asks {
		if m.Waiter != "" && m.Sent <= at {
			name = m.Waiter
		}
	}
	return name
}

// aStep is time for a request, its reply and a wake, for a watch that is being set up meanwhile, and for a place that was given
// up to be so.
const aStep = 12 * time.Millisecond

// idlers are locks that nobody has although a waiter of a Client could have them. Such a time is bounded: the waiter asks after
// one look, or when he is woken. What he finds then is a lock that is free, or reserved for another, who takes it or has it for
// no longer than a Reservation; and the same one is not offered it again before the waiter was. Where no message gets lost
// and nobody is stopped, only the dead don't take what is reserved for them, and a waiter among the first in the queue need
// not look by himself, since he is woken or knows when the lease ends.
//
// What does not count is time in which the Client can't reach anybody, or waits for an answer, also
// to a cleanup, that is on its way for longer than usual, or pauses after an attempt that the store
// has failed, and in which the node is out of reach.
func (h *History) idlers() []string {
	var found []string
	nothingLost := h.Fault.weather() == still && !h.Fault.silences()
	for _, l := range h.lines() {
		out := h.outOfReach(l)
		for _, idle := range without(without(l.calls, h.taken(l.key)), out) {
			place, others, dead := l.place(idle), 0, 0
			for _, waiter := range h.reservedIn(l, idle) {
				if others++; h.death(waiter) < idle.To {
					dead++
				}
			}
			bound := look(idle.To-l.around(idle.From).From, place) + time.Duration(others)*(backends.Reservation+aStep) + aStep
			if h.died(l.key, idle.From) { // with the lock: who is next was told of the reservation, and looks when it would be over
				dead++
			}
			if nothingLost && place <= lookouts {
				bound = time.Duration(dead)*backends.Reservation + time.Duration(others+1)*aStep
				// A node whose clock is fast says that more is left: to the waiter, and to each one
				// before it in the queue.
				bound += time.Duration(place+1) * time.Duration(h.Fault.rate()*float64(maxTTL))
			}
			if idle.length() > bound {
				found = append(found, fmt.Sprintf("%s has waited for %q from %v to %v, at place %d, and nobody had it; at most it is %v",
					l.client, l.key, idle.From, idle.To, place, bound))
			}
		}
	}
	return found
}

// died tells whether the one whose lease ended then was dead by that time.
func (h *History) died(key string, ended time.Duration) bool {
	for _, p := range h.presences(key) {
		if p.To != ended {
			continue
		}
		for _, a := range h.Attempts {
			if a.Token == p.token && h.death(a.Client) < ended {
				return true
			}
		}
	}
	return false
}

// lookouts is how many of a queue look for the end of the lease: see locker/backoff.go.
const lookouts = 3

// taken is when a token was under the key.
func (h *History) taken(key string) []Span {
	var spans []Span
	for _, p := range h.presences(key) {
		spans = append(spans, p.Span)
	}
	return merge(spans)
}

func (h *History) outOfReach(l *clientLine) []Span {
	spans := h.cutOffs(l.client)
	for _, s := range h.Strokes {
		if s.Node != 0 && s.Client == "" {
			spans = append(spans, Span{s.At, s.Ends})
		}
	}
	for _, m := range append(h.removals(l), l.asks...) {
		if m.Answered-m.Sent > aStep || m.Kind == Fails {
			spans = append(spans, Span{m.Sent, m.Answered})
		}
	}
	held := map[string]bool{}
	for _, d := range h.Holds {
		held[d.Token] = true
	}
	// After an attempt that the store has failed, or whose lease had ended when it came, a waiter
	// pauses as after any other.
	for _, a := range h.Attempts {
		if a.Client == l.client && a.Key == l.key && a.Waits && (a.Outcome == Unknown || a.Outcome == Granted && !held[a.Token]) {
			spans = append(spans, Span{a.Began, a.Answered + pollCap})
		}
	}
	return merge(spans)
}

// removals are the cleanups that are sent while the line attempts. An attempt that finds the lock
// held first removes what earlier ones of its process may have left, one after the other, and waits
// for the answers.
func (h *History) removals(l *clientLine) (sent []*Message) {
	for _, a := range h.Attempts {
		if a.Client != l.client || a.Key != l.key || !a.Waits {
			continue
		}
		for _, m := range h.Messages {
			if m.Client == l.client && m.Key == l.key && (m.Op == "DeleteIf" || m.Op == "Leave") && a.Began <= m.Sent && m.Sent < a.Answered {
				sent = append(sent, m)
			}
		}
	}
	return sent
}

// reservedIn are the Clients of the waiters for whom the key was reserved meanwhile, each waiter once. Those that the Client had
// before the one it has are others.
func (h *History) reservedIn(l *clientLine, in Span) (clients []string) {
	seen := map[string]bool{l.waiter(in.To): true}
	states := h.statesOf(1, l.key)
	for i, s := range states {
		ends := s.Ends
		if i+1 < len(states) {
			ends = min(ends, states[i+1].At)
		}
		if s.For != "" && !seen[s.For] && s.At <= in.To && ends > in.From {
			seen[s.For] = true
			clients = append(clients, clientOf(s.For))
		}
	}
	return clients
}

// clientOf is whose a waiter is, by its name.
func clientOf(waiter string) string {
	client, _, _ := strings.Cut(waiter, "~")
	return client
}
