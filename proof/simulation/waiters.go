package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// A clientLine is the calls of one Client that wait for a key. Its head asks for all of them, and
// has their position in the queue of the node.
type clientLine struct {
	client, key string
	calls       []Span // of Lock, merged
	asks        []*Message
}

// lines returns the lines of all Clients, for a strategy without owners.
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

// around returns the time around an instant in which the line was not empty.
func (l *clientLine) around(at time.Duration) Span {
	for _, c := range l.calls {
		if c.From <= at && at <= c.To {
			return c
		}
	}
	return Span{at, at}
}

// position returns the greatest position that the line knew in a span: the last before it, or one
// that it was told during it.
func (l *clientLine) position(in Span) (position int) {
	for _, m := range l.asks {
		switch {
		case m.Answered <= in.From && m.Kind == No:
			position = m.Position
		case m.Answered <= in.To && m.Kind == No:
			position = max(position, m.Position)
		}
	}
	return position
}

// waiter returns the waiter that has the position of the line.
func (l *clientLine) waiter(at time.Duration) (name string) {
	for _, m := range l.asks {
		if m.Waiter != "" && m.Sent <= at {
			name = m.Waiter
		}
	}
	return name
}

// aStep is time for a request, its reply and a wake, for a subscription that begins meanwhile, and
// for a request to leave the queue.
const aStep = 12 * time.Millisecond

// idlers finds locks that nobody has for too long although a waiter of a Client could have them.
// The waiter asks after one look, or when it is woken. Then the lock is free, or reserved for
// another waiter, which takes it within a Reservation or loses its position. Where no message is
// lost and nothing pauses, only dead waiters do not take their reservation. Then a waiter need not
// look either, since it is woken or knows when the lease ends. Far from the head of the queue it
// makes its attempt later.
//
// Some time does not count:
//   - the Client cannot reach the node, or the node is down or pauses;
//   - the Client waits for an answer that is slow, also to a cleanup;
//   - the Client pauses after an attempt that failed.
func (h *History) idlers() []string {
	var found []string
	nothingLost := h.Fault.weather() == still && !h.Fault.silences()
	for _, l := range h.lines() {
		out := h.outOfReach(l)
		for _, idle := range without(without(l.calls, h.taken(l.key)), out) {
			position, others, all, dead := l.position(idle), 0, time.Duration(0), time.Duration(0)
			for _, r := range h.reservedIn(l, idle) {
				others++
				all += r.lasts
				if h.death(r.client) < idle.To {
					dead += r.lasts
				}
			}
			bound := look(idle.To-l.around(idle.From).From, position) + all + time.Duration(others+1)*aStep
			bound += time.Duration(h.heads(l, idle)) * look(0, position)
			// The next waiter looks when the reservation of the last holder would end. It need not know
			// that the holder has a shorter lease.
			if h.ranOut(l.key, idle.From) {
				dead += backends.Reservation
			}
			if nothingLost {
				ends := dead + time.Duration(others+1)*(aStep+lookAfterEnd(position))
				// A node whose clock is fast reports too long a rest of the lease, to this waiter
				// and to each one before it.
				ends += time.Duration(position+1) * time.Duration(h.Fault.rate()*float64(maxTTL))
				bound = min(bound, ends)
			}
			if idle.length() > bound {
				found = append(found, fmt.Sprintf("%s waited for %q from %v to %v at position %d, and nobody had it; the limit is %v",
					l.client, l.key, idle.From, idle.To, position, bound))
			}
		}
	}
	return found
}

// heads is how many calls of the Client were handed a hold of it in a span in which the node had
// none: it had forgotten it. After each the next call in line begins its pause.
func (h *History) heads(l *clientLine, in Span) (n int) {
	for _, d := range h.Holds {
		if d.Client == l.client && d.Key == l.key && in.From < d.Granted && d.Granted < in.To {
			n++
		}
	}
	return n
}

// ranOut tells whether the lease that ended then ended by itself, and not by a request: its holder was
// dead, or the clock of the node was fast.
func (h *History) ranOut(key string, ended time.Duration) bool {
	return !slices.ContainsFunc(h.statesOf(1, key), func(s *State) bool { return s.At == ended })
}

// lookouts is how many waiters of a queue look as the lease ends: see locker/backoff.go.
const lookouts = 3

// lookAfterEnd is how much later those behind them look.
func lookAfterEnd(position int) time.Duration {
	return time.Duration(max(position-lookouts, 0)) * pollCap
}

// taken returns when the key had a token.
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
	// After an attempt that failed, or whose lease had ended when the answer came, a waiter pauses
	// as after any other.
	for _, a := range h.Attempts {
		if a.Client == l.client && a.Key == l.key && a.Waits && (a.Outcome == Unknown || a.Outcome == Granted && !held[a.Token]) {
			pause := max(pollCap, look(a.Answered-l.around(a.Answered).From, l.position(Span{a.Began, a.Answered})))
			spans = append(spans, Span{a.Began, a.Answered + pause})
		}
	}
	return merge(spans)
}

// removals returns the cleanups that were sent during the attempts of the line. An attempt that
// finds the lock held sends the cleanups of earlier attempts of its process, one after the other,
// and waits for the answers.
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

// A reservation is one for a waiter of a Client.
type reservation struct {
	client string
	lasts  time.Duration
}

// reservedIn returns the reservations of the key for other waiters in a span, the first for each.
// Earlier waiters of the same Client count.
func (h *History) reservedIn(l *clientLine, in Span) (all []reservation) {
	seen := map[string]bool{l.waiter(in.To): true}
	states := h.statesOf(1, l.key)
	for i, s := range states {
		ends := s.Ends
		if i+1 < len(states) {
			ends = min(ends, states[i+1].At)
		}
		if s.For != "" && !seen[s.For] && s.At <= in.To && ends > in.From {
			seen[s.For] = true
			all = append(all, reservation{clientOf(s.For), s.Ends - s.At})
		}
	}
	return all
}

// clientOf returns the Client of a waiter, by its name.
func clientOf(waiter string) string {
	client, _, _ := strings.Cut(waiter, "~")
	return client
}
