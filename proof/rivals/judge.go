package rivals

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
)

// A Violation is one that a record proves. It happened at a time, in ns since 1970.
type Violation struct {
	At   int64
	Text string
	// of the numbers alone
	Inverted bool
}

// Holds returns the tenures of some groups that had not ended when their programs learned of them.
// end says when a tenure ends, and is Tenure.End for most.
func Holds(all []Tenure, end func(Tenure) int64, groups ...string) (holds []history.Hold) {
	for _, t := range all {
		if slices.Contains(groups, t.Group) && t.Answered < end(t) {
			holds = append(holds, history.Hold{Key: t.Key, Who: t.Who, Start: t.Answered, End: end(t)})
		}
	}
	return holds
}

// Crowds finds tenures of a group beside which there were as many as the limit admits.
func Crowds(all []Tenure, group string, limit int) (found []Violation) {
	for _, c := range history.Crowds(Holds(all, Tenure.End, group), limit) {
		found = append(found, Violation{At: c.Hold.Start, Text: c.String()})
	}
	return found
}

// Mixtures finds tenures of the groups "read" and "write" that exclude each other.
func Mixtures(all []Tenure) []Violation {
	return Overlapping(history.Mixtures(Holds(all, Tenure.End, "read"), Holds(all, Tenure.End, "write")))
}

// Overlaps finds tenures of some groups that began before another one had ended.
func Overlaps(all []Tenure, groups ...string) []Violation {
	return Overlapping(history.Overlaps(Holds(all, Tenure.End, groups...)))
}

// OverlapsOfOwners is Overlaps for locks that nest: an owner may have several holds.
func OverlapsOfOwners(all []Tenure, group string) []Violation {
	owners := slices.Clone(all)
	for i := range owners {
		owners[i].Who = owners[i].Owner
	}
	overlaps := history.Overlaps(Holds(owners, Tenure.End, group))
	return Overlapping(slices.DeleteFunc(overlaps, func(o history.Overlap) bool { return o.First.Who == o.Second.Who }))
}

// Overlapping returns overlaps as violations.
func Overlapping(overlaps []history.Overlap) (found []Violation) {
	for _, o := range overlaps {
		found = append(found, Violation{At: o.Second.Start, Text: o.String()})
	}
	return found
}

// Inversions finds numbers that fell or repeated.
func Inversions(all []Tenure) (found []Violation) {
	var grants []history.Grant
	for _, t := range all {
		grants = append(grants, t.Grant())
	}
	for _, i := range history.Inversions(grants) {
		found = append(found, Violation{At: i.Second.Answered, Text: i.String(), Inverted: true})
	}
	return found
}

// A Phase begins with a fault.
type Phase struct {
	Fault string
	Began int64
}

// Phases are in the order of their beginnings. What happened at a time belongs to the fault that
// struck last.
type Phases []Phase

// Begin begins the phase of a fault now.
func (p *Phases) Begin(fault string) { *p = append(*p, Phase{fault, time.Now().UnixNano()}) }

// At returns the fault that struck last, or nothing before the first.
func (p Phases) At(at int64) string {
	i, met := slices.BinarySearchFunc(p, at, func(p Phase, at int64) int { return cmp.Compare(p.Began, at) })
	switch {
	case met:
		return p[i].Fault
	case i > 0:
		return p[i-1].Fault
	}
	return ""
}

// Cell adds to a cell the tenures and the violations of its fault. A writer beside a reader and
// another writer is one violation.
func (p Phases) Cell(c matrix.Cell, all []Tenure, found []Violation) matrix.Cell {
	for _, t := range all {
		if p.At(t.Answered) == c.Fault {
			c.Trials++
		}
	}
	counted := map[int64]bool{} // by when the tenure began
	for _, v := range found {
		switch {
		case p.At(v.At) != c.Fault:
		case v.Inverted:
			c.Inverted++
		case !counted[v.At]:
			counted[v.At] = true
			c.Violations++
		}
	}
	return c
}

// longestFree returns the longest time for which a lock was wanted and nobody held it, until a grant
// in the phase of a fault. The lease of a holder that died counts as a hold.
func (p Phases) longestFree(all []Tenure, fault string) (longest time.Duration) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Tenure) int { return cmp.Compare(a.Answered, b.Answered) })
	ended := map[string]int64{} // by key
	for _, t := range all {
		if end, held := ended[t.Key]; held && p.At(t.Answered) == fault {
			longest = max(longest, time.Duration(t.Answered-end))
		}
		ended[t.Key] = max(ended[t.Key], t.End())
	}
	return longest
}
