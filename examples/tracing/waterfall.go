package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// waterfall is all traces on one axis of time: the spans of a trace one below the other, each below its parent. The
// terminal and the picture are drawn from it.
type waterfall struct {
	from, to time.Time
	rows     []row
	holds    []hold
}

type row struct {
	span
	kind  kind
	depth int // 0: it begins a trace
}

// kind is what a bar means.
type kind string

const (
	calls    kind = "calls"
	waits    kind = "waits"
	attempts kind = "attempts"
	holds    kind = "holds"
	works    kind = "works"
	ends     kind = "ends"
)

var kinds = []kind{calls, waits, attempts, holds, works, ends}

// looks are how it is drawn: in the terminal, in the picture, and in the legend of both.
var looks = map[kind]struct {
	fill, colour string  // of a cell
	paint        string  // of a bar
	height       float64 // of a bar
	text         string
}{
	calls:    {"─", "", "#8a94a3", 3, "request"},
	waits:    {"░", "33", "#f3cf7a", 12, "waits for the lock"},
	attempts: {"▒", "33", "#c77d0a", 8, "attempt"},
	holds:    {"█", "32", "#2c9a5b", 12, "holds it"},
	works:    {"▓", "36", "#3a78c2", 8, "works"},
	ends:     {"▪", "35", "#8459b3", 8, "releases, extends"},
}

// hold is the time in which nobody else may have the lock.
type hold struct {
	process  byte // the last letter of the service
	from, to time.Time
}

// arrange puts spans in the order in which they are drawn.
func arrange(spans []span) waterfall {
	var w waterfall
	children, parents := map[string][]span{}, map[string]string{}
	for _, s := range spans {
		parents[s.ID] = s.Parent
	}
	for _, s := range spans {
		above := s.Parent
		if s.linked() {
			above = parents[s.Link]
		}
		children[above] = append(children[above], s)
		if w.from.IsZero() || s.From.Before(w.from) {
			w.from = s.From
		}
		if s.To.After(w.to) {
			w.to = s.To
		}
	}
	var below func(parent span, depth int)
	below = func(parent span, depth int) {
		of := children[parent.ID]
		slices.SortStableFunc(of, func(a, b span) int { return a.From.Compare(b.From) })
		for _, s := range of {
			w.rows = append(w.rows, row{s, kindOf(s, parent), depth})
			if s.Name == "lock hold" {
				w.holds = append(w.holds, hold{s.Service[len(s.Service)-1], s.From, s.To})
			}
			below(s, depth+1)
		}
	}
	below(span{}, 0)
	return w
}

// linked: it is a trace of its own, about a span of another one, beside which it is drawn.
func (s span) linked() bool { return s.Parent == "" && s.Link != "" }

func kindOf(s, parent span) kind {
	if s.Name == parent.Name {
		return attempts
	}
	switch s.Name {
	case "lock acquire":
		return waits
	case "lock hold":
		return holds
	case "lock release", "lock renew":
		return ends
	case "work":
		return works
	}
	return calls
}

// overlaps counts the holds that began before an earlier one had ended.
func (w waterfall) overlaps() (n int) {
	var end time.Time // of all holds so far
	for _, h := range slices.SortedFunc(slices.Values(w.holds), func(a, b hold) int { return a.from.Compare(b.from) }) {
		if h.from.Before(end) {
			n++
		}
		if h.to.After(end) {
			end = h.to
		}
	}
	return n
}

// root is the name of the first span of a trace.
func (w waterfall) root(id string) string {
	for _, r := range w.rows {
		if r.Trace == id && r.depth == 0 {
			return r.Name
		}
	}
	return ""
}

// label is the name of the span, or what it is if it has that of the one above.
func (r row) label() string {
	switch {
	case r.kind == attempts:
		return "attempt"
	case r.linked():
		return r.Name + " (linked)"
	}
	return r.Name
}

// says is how a span ended, if it says so.
func (r row) says() string {
	of := func(name string) string { return r.Attributes["lock."+name] }
	switch {
	case r.Attributes["http.response.status_code"] != "":
		return r.Attributes["http.response.status_code"]
	case of("lost.reason") != "":
		return "lost: " + of("lost.reason")
	case r.kind == waits:
		return of("outcome") + " ×" + of("attempts")
	case of("outcome") != "":
		return of("outcome")
	case r.Failed:
		return "failed"
	}
	return ""
}

func (r row) took() string { return milliseconds(r.To.Sub(r.From)) }

// ticks divide the time into steps that are easy to read: 1, 2, 5, 10, … ms, at most so many.
func (w waterfall) ticks(most int) (at []time.Duration) {
	whole := w.to.Sub(w.from)
	step := time.Millisecond
	for i := 0; whole/step >= time.Duration(most); i++ {
		step = step * []time.Duration{2, 5, 2}[i%3] / []time.Duration{1, 2, 1}[i%3]
	}
	for t := time.Duration(0); t <= whole; t += step {
		at = append(at, t)
	}
	return at
}

// Columns of the terminal, beside the bars.
const (
	serviceWidth = 7
	nameWidth    = 22
	tookWidth    = 10
	saysWidth    = 14 // with the space before it
	besides      = serviceWidth + nameWidth + tookWidth + saysWidth
	minWidth     = besides + 20
)

func (s *screen) waterfall(w waterfall, width int) {
	c := columns{w, width - besides}
	indent := strings.Repeat(" ", serviceWidth+nameWidth)
	s.printf("%s%s\n", indent, c.axis())
	for _, r := range w.rows {
		colour := ""
		if r.depth == 0 {
			s.printf("%s%s\n", indent, strings.TrimRight(c.blank(), " "))
			colour = bold
		}
		name := strings.Repeat(" ", r.depth) + r.label()
		left, bar, right := c.bar(r)
		says := r.says()
		if says != "" && r.Failed {
			says = s.paint(red, says)
		}
		line := padded(r.Service, serviceWidth) + s.paint(colour, padded(name, nameWidth)) +
			left + s.paint(looks[r.kind].colour, bar) + right + fmt.Sprintf("%*s  %s", tookWidth, r.took(), says)
		s.printf("%s\n", strings.TrimRight(line, " "))
	}
	s.printf("%s%s\n", indent, strings.TrimRight(c.blank(), " "))
	s.printf("%s%s%*d holds\n", padded("the lock is held by app-", serviceWidth+nameWidth), c.holders(), tookWidth-6, len(w.holds))
	s.printf("%s%s\n\n", indent, c.axis())
	var legend []string
	for _, k := range kinds {
		legend = append(legend, s.paint(looks[k].colour, strings.Repeat(looks[k].fill, 2))+" "+looks[k].text)
	}
	s.printf("  %s\n", strings.Join(legend, "  "))
}

func padded(text string, width int) string {
	if n := utf8.RuneCountInString(text); n < width {
		return text + strings.Repeat(" ", width-n)
	}
	return string([]rune(text)[:width-1]) + " "
}

// columns draw a waterfall so many wide.
type columns struct {
	waterfall
	n int
}

// at is the column of an instant, and a fraction.
func (c columns) at(t time.Time) float64 {
	return float64(c.n) * t.Sub(c.from).Seconds() / max(c.to.Sub(c.from), 1).Seconds()
}

// bar covers every column in which the span was open.
func (c columns) bar(r row) (left, bar, right string) {
	from := min(int(c.at(r.From)), c.n-1)
	to := max(int(math.Ceil(c.at(r.To))), from+1)
	blank := []rune(c.blank())
	return string(blank[:from]), strings.Repeat(looks[r.kind].fill, to-from), string(blank[to:])
}

// blank is a row without a bar.
func (c columns) blank() string {
	row := []rune(strings.Repeat(" ", c.n))
	for _, t := range c.ticks(6) {
		row[min(int(c.at(c.from.Add(t))), c.n-1)] = '┊'
	}
	return string(row)
}

func (c columns) axis() string {
	row := []rune(strings.Repeat(" ", c.n+tookWidth))
	for _, t := range c.ticks(6) {
		copy(row[int(c.at(c.from.Add(t))):], []rune(fmt.Sprintf("%d ms", t.Milliseconds())))
	}
	return strings.TrimRight(string(row), " ")
}

// holders has, for the beginning of each column, the number of the process that held the lock, or ! if there were two. A
// hold begins in its first column.
func (c columns) holders() string {
	row := []byte(strings.Repeat(".", c.n))
	for i := range row {
		t := c.from.Add(c.to.Sub(c.from) * time.Duration(i) / time.Duration(c.n))
		for _, h := range c.holds {
			switch {
			case t.Before(h.from) || !t.Before(h.to):
			case row[i] == '.':
				row[i] = h.process
			default:
				row[i] = '!'
			}
		}
	}
	for _, h := range c.holds {
		if i := min(int(c.at(h.from)), c.n-1); row[i] == '.' {
			row[i] = h.process
		}
	}
	return string(row)
}
