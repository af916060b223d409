package simulation

import (
	"cmp"
	"slices"
	"time"
)

// A term is a lease as its holder knew it from the instant told to the next term.
type term struct{ asked, told, expires time.Duration }

// terms returns what the holder was told during the hold. An answer that comes after the lease has
// ended does not count.
func (h *History) terms(d *Hold) []term {
	var extensions []*Extension
	for _, e := range h.Extensions {
		if h.during(d, e) && e.Done && e.Answered <= d.Ended {
			extensions = append(extensions, e)
		}
	}
	slices.SortStableFunc(extensions, func(a, b *Extension) int { return cmp.Compare(a.Answered, b.Answered) })
	terms := []term{{h.askedFor(d), d.Granted, d.Expires}}
	for _, e := range extensions {
		last := terms[len(terms)-1]
		if e.After > last.expires && e.Answered < last.expires && e.Answered < h.wallEnd(d.Client, last) {
			terms = append(terms, term{e.Began, e.Answered, e.After})
		}
	}
	return terms
}

// askedFor returns when the first lease of a hold was asked for. A lease that was handed over comes
// from the hold before, and the wall clock may have jumped between the two.
func (h *History) askedFor(d *Hold) time.Duration {
	asked := d.T1
	for _, before := range h.Holds {
		if before.Token == d.Token && before.T1 < d.T1 && before.Expires == d.Expires {
			asked = min(asked, before.T1)
		}
	}
	for _, e := range h.Extensions {
		if e.Token == d.Token && e.Done && e.After == d.Expires && e.Answered <= d.Granted {
			asked = min(asked, e.Began)
		}
	}
	return asked
}

// during tells whether this hold sent an extension, and not the hold before or after it.
func (h *History) during(d *Hold, e *Extension) bool {
	return e.Token == d.Token && e.Began >= d.T1 && e.Began < h.handedOver(d)
}

// handedOver returns when the next hold of the same lease began.
func (h *History) handedOver(d *Hold) time.Duration {
	next := Never
	for _, other := range h.Holds {
		if other.Token == d.Token && other.T1 > d.T1 {
			next = min(next, other.T1)
		}
	}
	return next
}

// last returns the lease as the holder knew it in the end.
func (h *History) last(d *Hold) term {
	terms := h.terms(d)
	return terms[len(terms)-1]
}

// expires returns the end of the lease, by all that its holder was told during the hold.
func (h *History) expires(d *Hold) time.Duration { return h.last(d).expires }

// expiresBefore is expires without what the holder was told at the instant at which the hold ended.
// The end of a hold ends an extension that is under way. If its nodes are asked in sequence, it may
// have its quorum by then.
func (h *History) expiresBefore(d *Hold) time.Duration {
	terms := h.terms(d)
	for len(terms) > 1 && terms[len(terms)-1].told == d.Ended {
		terms = terms[:len(terms)-1]
	}
	return terms[len(terms)-1].expires
}

// wallEnd returns when a term ended by the wall clock of its process, or Never if it expired first.
// All jumps since the term was asked for count.
func (h *History) wallEnd(client string, t term) time.Duration {
	from, ahead := t.told, time.Duration(0)
	for _, j := range h.Jumps {
		if j.Client != client || j.At < t.asked {
			continue
		}
		if over := max(from, t.expires-ahead); over < min(j.At, t.expires) {
			return over
		}
		from, ahead = max(from, j.At), ahead+j.By
	}
	if over := max(from, t.expires-ahead); over < t.expires {
		return over
	}
	return Never
}
