package simulation

import (
	"fmt"
	"slices"
	"time"
)

// checkOrder is ORDER: a released lock is reserved for the head of its queue, only the head takes
// it then, and a position serves once. A waiter that does not take its reservation is late: it keeps
// its position, and is not the head until its next attempt. Under a strategy that grants in order,
// nobody takes a free lock past a waiter that is not late. And if nothing goes wrong, a Client that
// knows its position gets the lock before any that asks later, unless a call of it ends while an attempt
// is under way.
func checkOrder(h *History) []string {
	if !h.Strategy.Queued {
		return nil
	}
	var found []string
	for _, key := range h.keys() {
		q := &lineUp{inOrder: h.Strategy.InOrder, late: map[string]bool{}}
		for _, s := range h.statesOf(1, key) {
			if says := q.next(s); says != "" {
				found = append(found, fmt.Sprintf("%q at %v: %s", key, s.At, says))
			}
		}
	}
	return slices.Concat(found, h.overtakings(), h.missed(h.lapses()))
}

// minding are the calls that ask for a lock with a queue.
var minding = []string{"SetNX", "SetNXQueued", "SetNXNumbered"}

// lineUp is the queue of a key, by the states of the node.
type lineUp struct {
	inOrder bool
	waiters []string
	late    map[string]bool // they have had a reservation, and made no attempt since
}

// next follows one step of the node and says what is wrong with it.
func (q *lineUp) next(s *State) (says string) {
	switch {
	case s.Op == "forgets" && s.BlockedUntil > s.Blocked: // a restart; the fault forget loses only locks
		q.waiters = nil
	case s.Op == leaves:
		q.remove(s.Waiter)
	case slices.Contains(minding, s.Op):
		delete(q.late, s.Waiter)
	}
	if s.For != "" && (s.For != s.WasFor || s.Ends > s.Until) && s.Op != "jumps" {
		if line := q.line(); len(line) == 0 || line[0] != s.For {
			says = fmt.Sprintf("it is reserved for %s; the queue is %v", s.For, line)
		}
		q.late[s.For] = true
	}
	if !slices.Contains(minding, s.Op) {
		return says
	}
	free := !s.Was || s.Before == s.Token
	switch {
	case !s.OK && s.Position > 0:
		if !slices.Contains(q.waiters, s.Waiter) {
			q.waiters = append(q.waiters, s.Waiter)
		}
		if i := slices.Index(q.line(), s.Waiter); i+1 != s.Position {
			says = fmt.Sprintf("%s is told position %d; the queue is %v", s.Waiter, s.Position, q.line())
		}
	case !s.OK: // a caller without a waiter has no position
	case s.WasFor != "" && s.WasFor != s.Waiter:
		says = fmt.Sprintf("it is reserved for %s, and granted to %s of waiter %q", s.WasFor, s.Token, s.Waiter)
	case q.inOrder && free && s.Before != s.Token && len(q.line()) > 0 && q.line()[0] != s.Waiter:
		says = fmt.Sprintf("it is granted to %s of waiter %q; the queue is %v", s.Token, s.Waiter, q.line())
	}
	if s.OK {
		q.remove(s.Waiter)
	}
	return says
}

// line is the queue without late waiters.
func (q *lineUp) line() []string {
	return slices.DeleteFunc(slices.Clone(q.waiters), func(w string) bool { return q.late[w] })
}

func (q *lineUp) remove(waiter string) {
	delete(q.late, waiter)
	q.waiters = slices.DeleteFunc(q.waiters, func(w string) bool { return w == waiter })
}

// A wait is a position as its Client knows it: when the Client asked, when it was told, and when it
// got the lock or stopped waiting.
type wait struct {
	client, key        string
	asked, told, until time.Duration
	granted            bool
	lost               string // the waiter whose position the call that ended may have used up
}

// overtakings finds grants to a Client that came later, in schedules where no message is lost or
// late and nothing pauses.
func (h *History) overtakings() []string {
	if w := h.Fault.weather(); !h.Strategy.InOrder || h.Handover || w != still && w != remote || h.Fault.silences() {
		return nil
	}
	var found []string
	waits := h.waits()
	for _, late := range waits {
		for _, early := range waits {
			if late.granted && late.key == early.key && late.asked > early.told && late.until < early.until {
				found = append(found, fmt.Sprintf("%s asked for %q at %v and got it at %v; %s had a position from %v to %v",
					late.client, late.key, late.asked, late.until, early.client, early.told, early.until))
			}
		}
	}
	return found
}

func (h *History) waits() []wait {
	var all []wait
	for _, l := range h.lines() {
		open := -1
		for _, m := range h.Messages { // in the order in which they were sent
			if m.Client != l.client || m.Key != l.key || m.Op == "SetNX" || !slices.Contains(minding, m.Op) {
				continue
			}
			if open >= 0 && m.Sent > all[open].until {
				open = -1
			}
			calls := l.around(m.Sent)
			if open < 0 {
				open = len(all)
				all = append(all, wait{client: l.client, key: l.key, asked: m.Sent, told: Never, until: calls.To})
			}
			switch {
			case m.Kind == Yes:
				all[open].until, all[open].granted = m.Answered, true
				open = -1
			case m.Waiter != "" && (m.Kind == Fails || h.hasLeft(m)):
				// The call has ended. Its attempt may use up the position for a grant that nobody wants,
				// so the line of its Client gives that position up.
				all[open].told, all[open].lost = Never, m.Waiter
			case m.Waiter != "" && m.Position > 0 && m.Waiter != all[open].lost: // the next call of the line has a position of its own
				all[open].told = min(all[open].told, m.Answered)
			}
		}
	}
	return all
}

// hasLeft tells whether the waiter of an attempt has left the queue before the answer to it came.
func (h *History) hasLeft(attempt *Message) bool {
	return slices.ContainsFunc(h.Messages, func(m *Message) bool {
		return m.Op == quits && m.Waiter == attempt.Waiter && attempt.Sent < m.Sent && m.Sent < attempt.Answered
	})
}

// A lapse is a reservation that was not taken.
type lapse struct {
	waiter, key string
	Span
}

// lapses are those of locks that have one holder.
func (h *History) lapses() (all []lapse) {
	for _, key := range h.keys() {
		states := h.statesOf(1, key)
		for i, s := range states {
			if s.For != "" && (i+1 == len(states) || states[i+1].At > s.Ends) {
				all = append(all, lapse{s.For, key, Span{s.At, s.Ends}})
			}
		}
	}
	return all
}

// missed finds lapses of waiters that are far away and do all they can: each hears of its reservation,
// and can take it in time. So no far waiter costs the others a reservation.
func (h *History) missed(all []lapse) (found []string) {
	if h.Fault != Far {
		return nil
	}
	for _, x := range all {
		client := clientOf(x.waiter)
		for _, l := range h.lines() {
			if l.client != client || l.key != x.key || h.waiterOf(l, x.To) != x.waiter || h.death(client) < x.To {
				continue
			}
			if calls := l.around(x.From); calls.From < x.From && calls.To > x.To {
				found = append(found, fmt.Sprintf("%q is reserved for %s from %v to %v, which waits and does not take it", x.key, x.waiter, x.From, x.To))
			}
		}
	}
	return found
}

// waiterOf returns the waiter that the line asked for last.
func (h *History) waiterOf(l *clientLine, at time.Duration) (name string) {
	for _, m := range h.Messages {
		if m.Client == l.client && m.Key == l.key && m.Sent <= at && m.Waiter != "" && m.Op != quits {
			name = m.Waiter
		}
	}
	return name
}
