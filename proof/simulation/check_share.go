package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// checkShareOrder is RW-ORDER, which an ordered semaphore keeps too: the node lets nobody in who
// asks in order while another waiter has a position before it, or a reservation that keeps it out.
// When the last hold ends, room is reserved for all waiters at the head of the queue that fit
// together. A request joins a lease only if its call stood in the line of the Client when that line
// had its turn.
func checkShareOrder(h *History) []string { return h.followShares(true) }

// checkRoom is SEM-LIVE, which readers keep too: while there is room and nothing is reserved, the
// node refuses nobody, unless it asks in order and somebody waits before it. It refuses a
// waiter that has a reservation only if as many hold as its limit.
func checkRoom(h *History) []string { return h.followShares(false) }

// followShares judges one node whose clock is not set. If it is set, it is not known when a hold
// ends. In a quorum each node has a queue of its own, and they may differ; there RW and LIVE are
// judged, and these two are not promised.
func (h *History) followShares(order bool) (found []string) {
	if h.Strategy.Permits == 0 && !h.Strategy.RW || h.Strategy.Nodes > 1 || h.Fault == Clock {
		return nil
	}
	for _, key := range h.keys() {
		f := &shares{h: h, key: key, holds: map[string]share{}, reserved: map[string]share{}, groups: map[string]share{}, late: map[string]bool{}}
		for _, s := range h.statesOf(1, key) {
			misplaced, refused := f.next(s)
			says := misplaced
			if !order {
				says = refused
			}
			if says != "" {
				found = append(found, fmt.Sprintf("%q at %v: %s", key, s.At, says))
			}
		}
		if order {
			found = append(found, h.missed(f.lapses)...)
		}
	}
	return found
}

// shares follows the states of one key. It knows of a reservation by the wake of its waiter, and of
// a position by the answer to its waiter.
type shares struct {
	h        *History
	key      string
	holds    map[string]share // by token
	reserved map[string]share // by waiter
	queue    []string
	groups   map[string]share // by waiter: what it asked for last
	late     map[string]bool  // waiters that have had a reservation, and made no attempt since
	lapses   []lapse
}

// share is what a hold or a waiter asks for. It ends at ends.
type share struct {
	group string
	limit int
	ends  time.Duration
	keep  time.Duration // how long a reservation for it lasts
}

// next follows one step. misplaced says that it breaks the order, and refused that it refuses a
// caller for no reason.
func (f *shares) next(s *State) (misplaced, refused string) {
	for waiter, x := range f.reserved {
		if x.ends <= s.At && s.Op != "forgets" {
			f.lapses = append(f.lapses, lapse{waiter, f.key, Span{x.ends - x.keep, x.ends}})
		}
	}
	for _, some := range []map[string]share{f.holds, f.reserved} {
		for name, x := range some {
			if x.ends <= s.At || s.Op == "forgets" {
				delete(some, name)
			}
		}
	}
	_, gave := f.reserved[s.Waiter] // if it leaves
	switch {
	case s.Op == "forgets" && s.BlockedUntil > s.Blocked:
		f.queue = nil
	case s.Op == leaves:
		f.drop(s.Waiter)
		delete(f.reserved, s.Waiter)
	}
	turn := backends.Turn{RoundTrip: s.RoundTrip}
	wanted := share{s.Group, s.Limit, s.At + s.TTL, turn.Reservation(s.TTL)}
	_, there := f.holds[s.Token]
	_, invited := f.reserved[s.Waiter]
	if s.Op == "Enter" {
		delete(f.reserved, s.Waiter)
		delete(f.late, s.Waiter)
		f.groups[s.Waiter] = wanted
	}
	if s.Op == "Leave" && s.OK {
		delete(f.holds, s.Token)
	}
	fitting := f.fitting()
	free := len(f.holds)+len(f.reserved) == 0
	woken := f.wake(s, gave)
	slices.Sort(fitting)
	slices.Sort(woken)
	if s.Op == "Leave" && s.OK && free && !slices.Equal(woken, fitting) {
		misplaced = fmt.Sprintf("the last hold ends, and room is reserved for %v; %v fit together", woken, fitting)
	}
	switch {
	case s.Op == "Renew" && s.OK && there:
		x := f.holds[s.Token]
		x.ends = max(x.ends, wanted.ends)
		f.holds[s.Token] = x
	case s.Op != "Enter" || s.Failed:
	case !s.OK && s.Position > 0 && !slices.Contains(f.queue, s.Waiter):
		f.queue = append(f.queue, s.Waiter)
	}
	if s.Op != "Enter" || s.Failed {
		return misplaced, ""
	}
	line := f.line()
	first := len(line) == 0 || line[0] == s.Waiter
	switch {
	case s.OK && !there && s.InOrder && !invited && !first:
		misplaced = fmt.Sprintf("%s of waiter %q is let in; the queue is %v", s.Token, s.Waiter, f.queue)
	case s.OK && !there && f.keptOut(wanted, invited, len(woken)):
		misplaced = fmt.Sprintf("%s of waiter %q is let in; the holds are %v, and it is reserved for %v", s.Token, s.Waiter, sortedKeys(f.holds), sortedKeys(f.reserved))
	case s.OK && !there && s.Joins && !f.stoodInLine(s):
		misplaced = fmt.Sprintf("%s joins, and its call began after the turn of its line", s.Token)
	case !s.OK && invited && !f.full(wanted):
		refused = fmt.Sprintf("%s of waiter %q is refused, although room is reserved for it", s.Token, s.Waiter)
	case !s.OK && len(f.reserved) == 0 && f.fits(wanted) && (!s.InOrder || first):
		refused = fmt.Sprintf("%s of waiter %q is refused beside %v; the queue is %v", s.Token, s.Waiter, sortedKeys(f.holds), f.queue)
	}
	if s.OK {
		f.drop(s.Waiter)
		wanted.ends = max(wanted.ends, f.holds[s.Token].ends)
		f.holds[s.Token] = wanted
	}
	return misplaced, refused
}

// line is the queue without late waiters.
func (f *shares) line() []string {
	return slices.DeleteFunc(slices.Clone(f.queue), func(w string) bool { return f.late[w] })
}

func (f *shares) drop(waiter string) {
	delete(f.late, waiter)
	f.queue = slices.DeleteFunc(f.queue, func(w string) bool { return w == waiter })
}

// wake notes reservations: the step wakes waiters that have a position. When a waiter leaves the
// queue, the next one is woken too. It has a reservation if it fits, or if the waiter gave its own.
func (f *shares) wake(s *State, gave bool) (woken []string) {
	at := s.At
	switch s.Op {
	case "Enter", "Leave":
	case leaves: // see the function leave
		at--
	default:
		return nil
	}
	for _, waiter := range f.line() { // the node serves them in this order
		if !slices.ContainsFunc(f.h.Wakes, func(w *Wake) bool { return w.Key == f.key && w.Sent == at && w.Waiter == waiter }) {
			continue
		}
		x := f.groups[waiter]
		if free := len(f.holds)+len(f.reserved) == 0; s.Op == leaves && !gave && (free || !f.fits(x)) {
			continue // it is the head of the queue now, and no more
		}
		f.late[waiter] = true
		x.ends = s.At + x.keep
		f.reserved[waiter] = x
		woken = append(woken, waiter)
	}
	return woken
}

// fitting returns the waiters at the head of the queue that fit together beside nobody.
func (f *shares) fitting() (all []string) {
	line := f.line()
	for i, w := range line {
		x, head := f.groups[w], f.groups[line[0]]
		if x.group != head.group || x.limit > 0 && i >= x.limit {
			break
		}
		all = append(all, w)
	}
	return all
}

func (f *shares) fits(x share) bool {
	n := len(f.holds) + len(f.reserved)
	return n == 0 || !f.otherGroup(x, f.holds) && !f.otherGroup(x, f.reserved) && (x.limit == 0 || n < x.limit)
}

// keptOut tells whether a hold does not fit. If its waiter was invited, whatever was reserved after
// that has counted it. The last reservations may have been made after it was let in.
func (f *shares) keptOut(x share, invited bool, last int) bool {
	n := len(f.holds) + len(f.reserved) - last
	return f.otherGroup(x, f.reserved) || f.full(x) || !invited && x.limit > 0 && n >= x.limit
}

// full tells whether there are as many holds as the limit of x.
func (f *shares) full(x share) bool { return x.limit > 0 && len(f.holds) >= x.limit }

func (f *shares) otherGroup(x share, among map[string]share) bool {
	for _, y := range among {
		if y.group != x.group {
			return true
		}
	}
	return false
}

// stoodInLine tells whether the call of s began before the Client was told of its last grant in
// order.
func (f *shares) stoodInLine(s *State) bool {
	var client, worker string
	asked := s.At // a message may arrive when its call has ended
	for _, a := range f.h.Attempts {
		if a.Token == s.Token {
			client, worker, asked = a.Client, a.Worker, a.Began
		}
	}
	var began time.Duration
	for _, w := range f.h.Wants {
		for _, c := range w.Calls {
			if w.Worker == worker && w.Key == f.key && c.From <= asked {
				began = max(began, c.From)
			}
		}
	}
	for _, m := range f.h.Messages {
		if m.Op == "Enter" && m.InOrder && m.Client == client && m.Key == f.key && m.Kind == Yes && m.Answered >= began && m.Sent < s.At {
			return true
		}
	}
	return false
}
