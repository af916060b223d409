package simulation

import (
	"cmp"
	"slices"
	"time"
)

// A term is a lease as its holder knew it from the instant told to the next term: it was asked for at an instant, and expires
// at another.
type term struct{ asked, told, expires time.Duration }

// terms are all that the holder was told while it held. What comes when a lease is over does not bring it back.
func (h *History) terms(d *Hold) []term {
	var extensions []*Extension
	for _, e := range h.Extensions {
		if e.Token == d.Token && e.Done && e.Answered <= d.Ended {
			extensions = append(extensions, e)
		}
	}
	slices.SortStableFunc(extensions, func(a, b *Extension) int { return cmp.Compare(a.Answered, b.Answered) })
	terms := []term{{d.T1, d.Granted, d.Expires}}
	for _, e := range extensions {
		last := terms[len(terms)-1]
		if e.After > last.expires && e.Answered < last.expires && e.Answered < h.wallEnd(d.Client, last) {
			terms = append(terms, term{e.Began, e.Answered, e.After})
		}
	}
	return terms
}

// last is the lease as the holder knew it in the end.
func (h *History) last(d *Hold) term {
	terms := h.terms(d)
	return terms[len(terms)-1]
}

// expires is the end of the lease by all that its holder was told while it held.
func (h *History) expires(d *Hold) time.Duration { return h.last(d).expires }

// wallEnd is when the wall clock of a process began to say that a term is over, if that was before it expired. What counts is
// by how much it was set since the term was asked for.
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
