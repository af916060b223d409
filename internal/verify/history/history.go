// Package history checks what holders of a lock wrote down.
package history

import (
	"cmp"
	"fmt"
	"slices"
)

// A Hold is one time that someone held a lock: from an instant at which the lock had been granted to one at which it
// had not yet been given back, in nanoseconds of a clock that all share. So the true hold was longer, and two Holds of
// one key that overlap prove that two held it at once.
type Hold struct {
	Key        string
	Who        string
	Start, End int64
}

// Overlap is a violation of mutual exclusion.
type Overlap struct{ First, Second Hold }

func (o Overlap) String() string {
	return fmt.Sprintf("%q: %s held it [%d, %d] and %s [%d, %d]",
		o.First.Key, o.First.Who, o.First.Start, o.First.End, o.Second.Who, o.Second.Start, o.Second.End)
}

// Overlaps returns a violation for each Hold that began before one that began earlier had ended. It sorts holds.
// Intervals are half open: one may begin at the instant at which another ends.
func Overlaps(holds []Hold) []Overlap {
	slices.SortFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
	})
	var found []Overlap
	for i := 1; i < len(holds); i++ {
		longest, h := &holds[i-1], &holds[i]
		if longest.Key != h.Key {
			continue
		}
		if h.Start < longest.End {
			found = append(found, Overlap{*longest, *h})
			if longest.End > h.End { // what reaches furthest is what the next one must not meet
				*h, *longest = *longest, *h
			}
		}
	}
	return found
}
