package laboratory

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/proof/history"
)

// A Record is what happened in one run of a scenario. The verdict is computed from it.
type Record struct {
	Began  time.Time
	Holds  []Hold
	Events []Event
	Asked  []Asked
	late   write         // that of the one who held first, after the next holder's
	next   next          // what became of the lock after its owner
	After  time.Duration // how long the next one waited for it, if someone did
	ran    ran           // how often a job ran
	untold bool          // the owner's look at its context did not tell that the lease had ended
}

// A Hold is a time in which a holder believed to have the lock: from the grant until the lease ended,
// or until the holder's context last said so. A holder that does not look at its context may work
// for longer.
type Hold struct {
	Who                string
	From, Until, Works time.Time
	With               int // so many may hold at once, this one included; 0: one; anyNumber: any
}

// most is the limit as a number.
func (h Hold) most() int {
	switch h.With {
	case 0:
		return 1
	case anyNumber:
		return math.MaxInt
	}
	return h.With
}

// An Event is a step of the story.
type Event struct {
	At        time.Time
	Who, Text string
}

// Asked is an attempt that found the lock held, or a wait that ended so.
type Asked struct {
	Who      string
	From, To time.Time
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
	keptByTheDead // others held the lock beside the dead owner, and renewed its hold with theirs
	neverGotIt
)

// ran is how often a job of one period ran.
type ran int

const (
	notAJob ran = iota
	once
	twice
)

// A Span is a time in which two had a lease, or worked.
type Span struct {
	First, Second string
	From, To      time.Time
}

// Length is how long the span lasts.
func (s Span) Length() time.Duration { return s.To.Sub(s.From) }

// leases finds the times in which two had a lease.
func (r *Record) leases() []Span { return r.overlaps(func(h Hold) time.Time { return h.Until }) }

// Works finds the times in which two worked, with a lease or without.
func (r *Record) Works() []Span { return r.overlaps(func(h Hold) time.Time { return h.Works }) }

func (r *Record) overlaps(end func(Hold) time.Time) (spans []Span) {
	if slices.ContainsFunc(r.Holds, func(h Hold) bool { return h.With != 0 }) {
		return r.tooMany(end)
	}
	var holds []history.Hold
	for _, h := range r.Holds {
		holds = append(holds, history.Hold{Who: h.Who, Start: h.From.UnixNano(), End: end(h).UnixNano()})
	}
	for _, o := range history.Overlaps(holds) {
		spans = append(spans, Span{
			o.First.Who, o.Second.Who,
			time.Unix(0, o.Second.Start), time.Unix(0, min(o.First.End, o.Second.End)),
		})
	}
	return spans
}

// tooMany finds the times in which more held the lock than any of them admits.
func (r *Record) tooMany(end func(Hold) time.Time) (spans []Span) {
	for _, h := range r.Holds {
		in := r.at(h.From, end)
		if len(in) < 2 || fit(in) {
			continue
		}
		ends := make([]time.Time, len(in))
		for i := range in {
			ends[i] = end(in[i])
		}
		slices.SortFunc(ends, time.Time.Compare)
		to := ends[slices.IndexFunc(ends, func(t time.Time) bool { return fit(r.at(t, end)) || t.Equal(ends[len(ends)-1]) })]
		if first := in[0]; end(h).After(h.From) && first.Who != h.Who {
			spans = append(spans, Span{first.Who, h.Who, h.From, to})
		}
	}
	return spans
}

// at are those who hold the lock at an instant, by the order in which they got it.
func (r *Record) at(t time.Time, end func(Hold) time.Time) (in []Hold) {
	for _, h := range r.Holds {
		if !h.From.After(t) && end(h).After(t) {
			in = append(in, h)
		}
	}
	slices.SortStableFunc(in, func(a, b Hold) int { return a.From.Compare(b.From) })
	return in
}

// fit tells whether all of them admit so many.
func fit(in []Hold) bool {
	return !slices.ContainsFunc(in, func(h Hold) bool { return h.most() < len(in) })
}

// keptOut tells that someone was refused while another held the lock, from before the question until after the answer.
// Without that, a history in which nobody met anybody would look safe.
func (r *Record) keptOut() bool {
	return slices.ContainsFunc(r.Asked, func(a Asked) bool {
		return slices.ContainsFunc(r.Holds, func(h Hold) bool {
			return h.Who != a.Who && h.From.Before(a.From) && (h.Until.After(a.To) || h.Works.After(a.To))
		})
	})
}

// Story returns the events in order.
func (r *Record) Story() []Event {
	return slices.SortedStableFunc(slices.Values(r.Events), func(a, b Event) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
}

// End is the last instant of the record.
func (r *Record) End() time.Time {
	last := r.Began
	for _, h := range r.Holds {
		last = latest(last, h.Until, h.Works)
	}
	for _, e := range r.Events {
		last = latest(last, e.At)
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
