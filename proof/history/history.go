// Package history checks the records of holders of a lock.
package history

import "fmt"

// A Hold is one hold of a lock: from an instant after the grant to one before the release, in
// nanoseconds of a clock that all share. The real hold was longer, so two Holds of one key that
// overlap prove that there were two holders at once.
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

// Overlaps returns a violation for each Hold that began before an earlier one had ended. A Hold may
// begin at the instant at which another ends. It sorts holds.
func Overlaps(holds []Hold) []Overlap {
	sort(holds)
	var found []Overlap
	for i := 1; i < len(holds); i++ {
		longest, h := &holds[i-1], &holds[i]
		if longest.Key != h.Key {
			continue
		}
		if h.Start < longest.End {
			found = append(found, Overlap{*longest, *h})
			if longest.End > h.End { // the next Hold must not begin before the latest end
				*h, *longest = *longest, *h
			}
		}
	}
	return found
}
