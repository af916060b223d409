package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/internal/verify/history"
)

// A record is what happened in one run of a scenario. Everything that is said about it is computed from this.
type record struct {
	began  time.Time
	holds  []hold
	events []event
	asked  []asked
	late   write         // that of the one who held first, after the next holder's
	next   next          // what became of the lock after its owner
	after  time.Duration // how long the next one waited for it, if someone did
	untold bool          // the owner's look at its context did not tell that the lease had ended
}

// A hold is a time for which someone believed to have the lock: from when it had been granted until the lease ended, or
// until the last time that the context was seen to say so. Who does not look may go on with the work for longer.
type hold struct {
	who                string
	from, until, works time.Time
}

// An event is a step of the story.
type event struct {
	at        time.Time
	who, text string
}

// asked is an attempt that was refused, or a wait that ended so.
type asked struct {
	who      string
	from, to time.Time
}

// A write at the resource by someone who is late.
type write int

const (
	notWritten write = iota
	landed
	refusedByFence
)

// next is what who comes after a dead owner finds.
type next int

const (
	nobodyCame next = iota
	gotIt
	gotItAfterRepair
	neverGotIt
)

// span is a time during which two were at it.
type span struct {
	first, second string
	from, to      time.Time
}

func (s span) length() time.Duration { return s.to.Sub(s.from) }

// leases finds the times during which two had a lease; works, those during which two worked.
func (r *record) leases() []span { return r.overlaps(func(h hold) time.Time { return h.until }) }
func (r *record) works() []span  { return r.overlaps(func(h hold) time.Time { return h.works }) }

func (r *record) overlaps(end func(hold) time.Time) (spans []span) {
	var holds []history.Hold
	for _, h := range r.holds {
		holds = append(holds, history.Hold{Who: h.who, Start: h.from.UnixNano(), End: end(h).UnixNano()})
	}
	for _, o := range history.Overlaps(holds) {
		spans = append(spans, span{
			o.First.Who, o.Second.Who,
			time.Unix(0, o.Second.Start), time.Unix(0, min(o.First.End, o.Second.End)),
		})
	}
	return spans
}

// keptOut tells that someone was refused while another held the lock, from before the question until after the answer.
// Without that, a history in which nobody met anybody would look safe.
func (r *record) keptOut() bool {
	return slices.ContainsFunc(r.asked, func(a asked) bool {
		return slices.ContainsFunc(r.holds, func(h hold) bool {
			return h.who != a.who && h.from.Before(a.from) && (h.until.After(a.to) || h.works.After(a.to))
		})
	})
}

// story is the events in order.
func (r *record) story() []event {
	return slices.SortedStableFunc(slices.Values(r.events), func(a, b event) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
}

// end is the last instant that the record knows of.
func (r *record) end() time.Time {
	last := r.began
	for _, h := range r.holds {
		last = latest(last, h.until, h.works)
	}
	for _, e := range r.events {
		last = latest(last, e.at)
	}
	return last
}

func latest(t time.Time, others ...time.Time) time.Time {
	for _, o := range others {
		if o.After(t) {
			t = o
		}
	}
	return t
}
