package history

import (
	"cmp"
	"fmt"
	"slices"
)

// A Grant is one numbered grant, with an instant before the request and one after the answer, in
// nanoseconds of a clock that all share.
type Grant struct {
	Key             string
	Who             string
	Asked, Answered int64
	Fence           uint64
	// Shared: other Shared grants may have the same number, as readers that hold together.
	Shared bool
}

// Inversion is a violation of fencing: First was answered before Second was asked for and has the
// greater number, or both have the same number and may not share it.
type Inversion struct{ First, Second Grant }

func (i Inversion) String() string {
	says := "then"
	if i.First.Fence == i.Second.Fence {
		says = "and"
	}
	return fmt.Sprintf("%q: %d for %s [%d, %d], %s %d for %s [%d, %d]", i.First.Key,
		i.First.Fence, i.First.Who, i.First.Asked, i.First.Answered, says,
		i.Second.Fence, i.Second.Who, i.Second.Asked, i.Second.Answered)
}

// Inversions returns a violation for each Grant whose number is lower than the greatest number that
// was answered before its request, and one for each Grant with the number of an earlier one, unless
// both are Shared. Grants that overlap may have their numbers in any order. It sorts grants.
func Inversions(grants []Grant) []Inversion {
	slices.SortFunc(grants, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Asked, b.Asked), cmp.Compare(a.Fence, b.Fence))
	})
	answered := slices.Clone(grants)
	slices.SortFunc(answered, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Answered, b.Answered))
	})
	var found []Inversion
	var greatest Grant                // of key, answered before g was asked for
	numbers := make(map[uint64]Grant) // of key
	next := 0                         // of answered
	for _, g := range grants {
		if g.Key != greatest.Key {
			greatest = Grant{Key: g.Key}
			clear(numbers)
		}
		for ; next < len(answered) && (answered[next].Key < g.Key || answered[next].Key == g.Key && answered[next].Answered < g.Asked); next++ {
			if a := answered[next]; a.Key == g.Key && a.Fence > greatest.Fence {
				greatest = a
			}
		}
		if g.Fence < greatest.Fence {
			found = append(found, Inversion{greatest, g})
		}
		switch other, taken := numbers[g.Fence]; {
		case !taken:
			numbers[g.Fence] = g
		case !other.Shared || !g.Shared:
			found = append(found, Inversion{other, g})
		}
	}
	return found
}
