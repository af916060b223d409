package history

import (
	"cmp"
	"fmt"
	"slices"
)

// A Crowd is a violation of a limit: when the Hold began, as many others as the limit admits had
// not ended.
type Crowd struct {
	Hold   Hold
	Others []Hold
}

func (c Crowd) String() string {
	text := fmt.Sprintf("%q: %s held it [%d, %d] beside", c.Hold.Key, c.Hold.Who, c.Hold.Start, c.Hold.End)
	for _, o := range c.Others {
		text += fmt.Sprintf(" %s [%d, %d]", o.Who, o.Start, o.End)
	}
	return text
}

// Crowds returns a violation for each Hold of a semaphore that began while limit others of its key
// had not ended. A Hold may begin at the instant at which another ends. It sorts holds.
func Crowds(holds []Hold, limit int) []Crowd {
	sort(holds)
	var found []Crowd
	var open []Hold // of the key, which had not ended when the last of them began
	for _, h := range holds {
		open = slices.DeleteFunc(open, func(o Hold) bool { return o.Key != h.Key || o.End <= h.Start })
		if len(open) >= limit {
			found = append(found, Crowd{h, slices.Clone(open)})
		}
		open = append(open, h)
	}
	return found
}

// Mixtures returns a violation for each Hold of a read-write lock that began beside one that it
// excludes: a writer beside any other, or a reader beside a writer. A violation names one of the
// others. It sorts both.
func Mixtures(readers, writers []Hold) []Overlap {
	sort(readers)
	sort(writers)
	found := Overlaps(writers)
	sort(writers) // Overlaps may have changed their order
	// Both are in the order of their starts, so each pair that overlaps is met when the later of the
	// two comes, by the longest of the earlier ones.
	var reader, writer *Hold
	longest := func(of *Hold, key string) *Hold {
		if of == nil || of.Key != key {
			return nil
		}
		return of
	}
	for r, w := 0, 0; r < len(readers) || w < len(writers); {
		reads := w == len(writers) || r < len(readers) && order(readers[r], writers[w]) <= 0
		if reads {
			h := &readers[r]
			r++
			if writer = longest(writer, h.Key); writer != nil && h.Start < writer.End {
				found = append(found, Overlap{*writer, *h})
			}
			if reader = longest(reader, h.Key); reader == nil || reader.End < h.End {
				reader = h
			}
			continue
		}
		h := &writers[w]
		w++
		if reader = longest(reader, h.Key); reader != nil && h.Start < reader.End {
			found = append(found, Overlap{*reader, *h})
		}
		if writer = longest(writer, h.Key); writer == nil || writer.End < h.End {
			writer = h
		}
	}
	return found
}

func sort(holds []Hold) { slices.SortFunc(holds, order) }

func order(a, b Hold) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
}
