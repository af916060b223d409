package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// span is a time by the wall clock, which all processes of a machine share.
type span struct{ from, to time.Time }

func (s span) String() string { return fmt.Sprintf("%d %d", s.from.UnixNano(), s.to.UnixNano()) }

func parseSpan(text string) (span, error) {
	var from, to int64
	if _, err := fmt.Sscanf(text, "%d %d", &from, &to); err != nil {
		return span{}, fmt.Errorf("%q is not a span: %w", text, err)
	}
	return span{time.Unix(0, from), time.Unix(0, to)}, nil
}

func (s span) contains(t time.Time) bool { return !t.Before(s.from) && t.Before(s.to) }

// hold is a span in which a process was between reading the file and writing it.
type hold struct {
	pid int
	span
}

// overlaps counts the holds that began before an earlier one had ended. It sorts holds by their beginning.
func overlaps(holds []hold) (n int) {
	slices.SortFunc(holds, func(a, b hold) int { return a.from.Compare(b.from) })
	var end time.Time // of all holds so far
	for _, h := range holds {
		if h.from.Before(end) {
			n++
		}
		if h.to.After(end) {
			end = h.to
		}
	}
	return n
}

const (
	columns = 64 // of a timeline: with a pid before it, it fits in 80
	mark    = "█"
	blank   = "·"
)

// window is the part of a run that a timeline shows: one instant per column, so that a column in which two processes
// hold the lock is a fault and nothing else.
type window struct {
	from   time.Time
	column time.Duration
}

// middle is a window so narrow that most holds are two columns or more: the one closest to the middle of all holds in
// which each process has one, or else the very middle.
func middle(holds []hold) window {
	lengths := make([]time.Duration, len(holds))
	first, last := holds[0].from, holds[0].to
	for i, h := range holds {
		lengths[i] = h.to.Sub(h.from)
		first, last = earliest(first, h.from), latest(last, h.to)
	}
	column := roundDown(median(lengths) / 2)
	center := window{first.Add((last.Sub(first) - columns*column) / 2), column}
	for away := time.Duration(0); away < center.from.Sub(first); away += columns / 4 * column {
		for _, from := range []time.Time{center.from.Add(-away), center.from.Add(away)} {
			if w := (window{from, column}); w.showsAll(holds) {
				return w
			}
		}
	}
	return center
}

func (w window) showsAll(holds []hold) bool {
	_, rows, _ := w.draw(holds)
	return !slices.ContainsFunc(rows, func(row string) bool { return !strings.Contains(row, mark) })
}

// draw gives a row for each process, in the order of their pids, and one that counts the holders.
func (w window) draw(holds []hold) (pids []int, rows []string, count string) {
	for _, h := range holds {
		pids = append(pids, h.pid)
	}
	slices.Sort(pids)
	pids = slices.Compact(pids)
	cells := make([][]string, len(pids))
	for i := range cells {
		cells[i] = slices.Repeat([]string{blank}, columns)
	}
	counts := make([]int, columns)
	end := w.from.Add(columns * w.column)
	for _, h := range holds {
		if h.to.Before(w.from) || h.from.After(end) {
			continue
		}
		row, _ := slices.BinarySearch(pids, h.pid)
		for c := range columns {
			if h.contains(w.from.Add(time.Duration(c) * w.column)) {
				cells[row][c] = mark
				counts[c]++
			}
		}
	}
	for _, row := range cells {
		rows = append(rows, strings.Join(row, ""))
	}
	for _, n := range counts {
		if n == 0 {
			count += blank
		} else {
			count += strconv.Itoa(n)
		}
	}
	return pids, rows, count
}

// roundDown gives the next lower of 1, 2, 5, 10, 20, 50, … µs.
func roundDown(d time.Duration) time.Duration {
	best := time.Microsecond
	for unit := best; unit <= d; unit *= 10 {
		for _, step := range []time.Duration{1, 2, 5} {
			if step*unit <= d {
				best = step * unit
			}
		}
	}
	return best
}

func median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[(len(sorted)-1)/2]
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
