package simulation

import (
	"fmt"
	"slices"
	"time"
)

// checkOrder is ORDER: a released lock is reserved for the head of its queue, only the head takes
// it then, and a position serves once. Under a strategy that grants in order, only the head takes a
// free lock. And if nothing goes wrong, a Client that knows its position gets the lock before any
// that asks later.
func checkOrder(h *History) []string {
	if !h.Strategy.Queued {
		return nil
	}
	var found []string
	for _, key := range h.keys() {
		q := &lineUp{inOrder: h.Strategy.InOrder}
		for _, s := range h.statesOf(1, key) {
			if says := q.next(s); says != "" {
				found = append(found, fmt.Sprintf("%q at %v: %s", key, s.At, says))
			}
		}
	}
	return append(found, h.overtakings()...)
}

// minding are the calls that ask for a lock with a queue.
var minding = []string{"SetNX", "SetNXQueued", "SetNXNumbered"}

// lineUp is the queue of a key, by the states of the node.
type lineUp struct {
	inOrder bool
	waiters []string
}

// next follows one step of the node and says what is wrong with it.
func (q *lineUp) next(s *State) (says string) {
	switch {
	case s.Op == "forgets" && s.BlockedUntil > s.Blocked: // a restart; the fault forget loses only locks
		q.waiters = nil
	case s.Op == leaves:
		q.remove(s.Waiter)
	}
	if s.For != "" && (s.For != s.WasFor || s.Ends > s.Until) && s.Op != "jumps" {
		if len(q.waiters) == 0 || q.waiters[0] != s.For {
			says = fmt.Sprintf("it is reserved for %s; the queue is %v", s.For, q.waiters)
		}
		q.remove(s.For)
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
		if i := slices.Index(q.waiters, s.Waiter); i+1 != s.Position {
			says = fmt.Sprintf("%s is told position %d; the queue is %v", s.Waiter, s.Position, q.waiters)
		}
	case !s.OK: // a caller without a waiter has no position
	case s.WasFor != "" && s.WasFor != s.Waiter:
		says = fmt.Sprintf("it is reserved for %s, and granted to %s of waiter %q", s.WasFor, s.Token, s.Waiter)
	case q.inOrder && free && s.Before != s.Token && len(q.waiters) > 0 && q.waiters[0] != s.Waiter:
		says = fmt.Sprintf("it is granted to %s of waiter %q; the queue is %v", s.Token, s.Waiter, q.waiters)
	}
	if s.OK {
		q.remove(s.Waiter)
	}
	return says
}

func (q *lineUp) remove(waiter string) {
	q.waiters = slices.DeleteFunc(q.waiters, func(w string) bool { return w == waiter })
}

// A wait is a position as its Client knows it: when the Client asked, when it was told, and when it
// got the lock or stopped waiting.
type wait struct {
	client, key        string
	asked, told, until time.Duration
	granted            bool
}

// overtakings finds grants to a Client that came later, in schedules where no message is lost or
// late and nothing pauses.
func (h *History) overtakings() []string {
	if !h.Strategy.InOrder || h.Handover || h.Fault.weather() != still || h.Fault.silences() {
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
			case m.Waiter != "" && m.Position > 0:
				all[open].told = min(all[open].told, m.Answered)
			}
		}
	}
	return all
}
