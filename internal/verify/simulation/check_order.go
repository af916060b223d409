package simulation

import (
	"fmt"
	"slices"
	"time"
)

// checkOrder is ORDER: a lock that is given up is reserved for the first of its queue, only he takes it then, and a place serves
// once. Under a strategy that grants in order, a free lock is for the first of the queue as well; and if nothing goes
// wrong, a Client that was told its place is granted the lock before any that has asked for one after that.
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

// minding are the calls that ask for a lock with a queue beside it.
var minding = []string{"SetNX", "SetNXQueued", "SetNXNumbered"}

// lineUp is the queue of a key, by what the node has done.
type lineUp struct {
	inOrder bool
	waiters []string
}

// next says what is wrong with a step of the node.
func (q *lineUp) next(s *State) (says string) {
	switch {
	case s.Op == "forgets" && s.BlockedUntil > s.Blocked: // a restart; others forget only the locks
		q.waiters = nil
	case s.Op == leaves:
		q.remove(s.Waiter)
	}
	if s.For != "" && (s.For != s.WasFor || s.Ends > s.Until) && s.Op != "jumps" {
		if len(q.waiters) == 0 || q.waiters[0] != s.For {
			says = fmt.Sprintf("it is reserved for %s; in the queue are %v", s.For, q.waiters)
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
			says = fmt.Sprintf("%s is told place %d; in the queue are %v", s.Waiter, s.Position, q.waiters)
		}
	case !s.OK: // without a wake no place
	case s.WasFor != "" && s.WasFor != s.Waiter:
		says = fmt.Sprintf("it is reserved for %s, and granted to %s, who is %q", s.WasFor, s.Token, s.Waiter)
	case q.inOrder && free && s.Before != s.Token && len(q.waiters) > 0 && q.waiters[0] != s.Waiter:
		says = fmt.Sprintf("it is granted to %s, who is %q; in the queue are %v", s.Token, s.Waiter, q.waiters)
	}
	if s.OK {
		q.remove(s.Waiter)
	}
	return says
}

func (q *lineUp) remove(waiter string) {
	q.waiters = slices.DeleteFunc(q.waiters, func(w string) bool { return w == waiter })
}

// A wait is a place as its Client knows it: it was asked for at an instant, and told at another, until the Client was granted the
// lock or wanted it no more.
type wait struct {
	client, key        string
	asked, told, until time.Duration
	granted            bool
}

// overtakings are grants to who has come later, where all that was sent has arrived at once and nobody was stopped.
func (h *History) overtakings() []string {
	if !h.Strategy.InOrder || h.Handover || h.Fault.weather() != still || h.Fault.silences() {
		return nil
	}
	var found []string
	waits := h.waits()
	for _, late := range waits {
		for _, early := range waits {
			if late.granted && late.key == early.key && late.asked > early.told && late.until < early.until {
				found = append(found, fmt.Sprintf("%s has asked for %q at %v and has it at %v; %s has a place since %v until %v",
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
