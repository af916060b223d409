package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// A table has a row for each contender and a column for each metric.
type table struct {
	title   string
	base    string // the row that the first metric is divided by; empty: no ratios
	metrics []metric
	rows    []*row

	repetitions int // of all contenders
}

type metric struct {
	name   string
	digits int  // after the point
	most   bool // more is better
}

type row struct {
	contender
	figures [][]float64 // by metric, one for each repetition
	broke   []error     // one for each repetition without a result
	strays  []error     // calls that failed in the other repetitions
}

func newTable(title, base string, metrics []metric, contenders ...contender) *table {
	t := &table{title: title, base: base, metrics: metrics}
	for _, c := range contenders {
		t.rows = append(t.rows, &row{contender: c, figures: make([][]float64, len(metrics))})
	}
	return t
}

// note adds figures, without those that were divided by zero.
func (r *row) note(figures []float64) {
	for i, f := range figures {
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			r.figures[i] = append(r.figures[i], f)
		}
	}
}

// reasons lists each error once. Of a joined error it takes the first line.
func reasons(errs []error) string {
	var all []string
	for _, err := range errs {
		first, _, _ := strings.Cut(err.Error(), "\n")
		if !slices.Contains(all, first) {
			all = append(all, first)
		}
	}
	return strings.Join(all, "; ")
}

// median is NaN if there is no such row, or if it has no figures.
func (t *table) median(name string, metric int) float64 {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		return math.NaN()
	}
	return t.rows[i].median(metric)
}

func (r *row) median(metric int) float64 {
	if len(r.figures[metric]) == 0 {
		return math.NaN()
	}
	median, _, _ := lab.Spread(r.figures[metric])
	return median
}

// bestPeer is the best median of the peers.
func (t *table) bestPeer(metric int) float64 { return t.bestPeerThrough(metric) }

// bestPeerThrough is the best median of the named peers, or of all peers without names.
func (t *table) bestPeerThrough(metric int, names ...string) float64 {
	best := math.NaN()
	for _, r := range t.rows {
		if len(names) > 0 && !slices.Contains(names, r.name) {
			continue
		}
		m := r.median(metric)
		better := m < best
		if t.metrics[metric].most {
			better = m > best
		}
		if r.kind == peer && !math.IsNaN(m) && (math.IsNaN(best) || better) {
			best = m
		}
	}
	return best
}

// apart is how far the same code is from itself: the largest ratio between the two A/A rows of name in one repetition.
func (t *table) apart(name string, metric int) float64 {
	most := 1.0
	var two [2][]float64
	for _, r := range t.rows {
		switch r.name {
		case name:
			two[0] = r.figures[metric]
		case name + aa:
			two[1] = r.figures[metric]
		}
	}
	for i := range min(len(two[0]), len(two[1])) {
		most = max(most, two[0][i]/two[1][i], two[1][i]/two[0][i])
	}
	return most
}

func (t *table) markdown() string {
	var s strings.Builder
	fmt.Fprintf(&s, "**%s** (%s)\n\n| contender |", t.title, t.repeated())
	for _, m := range t.metrics {
		fmt.Fprintf(&s, " %s |", m.name)
	}
	if t.base != "" {
		fmt.Fprintf(&s, " × %s |", t.base)
	}
	s.WriteString("\n|---|" + strings.Repeat("---|", len(t.metrics)))
	if t.base != "" {
		s.WriteString("---|")
	}
	s.WriteString("\n")
	for _, r := range t.rows {
		fmt.Fprintf(&s, "| %s |", r.label())
		for i, m := range t.metrics {
			fmt.Fprintf(&s, " %s |", r.cell(i, m))
		}
		if t.base != "" {
			fmt.Fprintf(&s, " %s |", number(r.median(0)/t.median(t.base, 0), 2))
		}
		s.WriteString("\n")
	}
	for _, r := range t.rows {
		if len(r.broke) > 0 {
			fmt.Fprintf(&s, "\n- %s failed in %d of its turns: %s", r.name, len(r.broke), reasons(r.broke))
		}
		if len(r.strays) > 0 {
			fmt.Fprintf(&s, "\n- %s: %d calls failed in the other turns: %s", r.name, len(r.strays), reasons(r.strays))
		}
	}
	return strings.TrimSuffix(s.String(), "\n") + "\n"
}

// repeated says how many repetitions the figures have.
func (t *table) repeated() string {
	if t.repetitions == 1 {
		return "one repetition: no range"
	}
	return fmt.Sprintf("median and range of %d repetitions", t.repetitions)
}

func (r *row) label() string {
	if r.kind == ours {
		return "**" + r.name + "**"
	}
	return r.name
}

// cell is the median with the range.
func (r *row) cell(i int, m metric) string {
	if len(r.figures[i]) == 0 {
		if len(r.broke) > 0 {
			return "failed"
		}
		return "–"
	}
	median, least, most := lab.Spread(r.figures[i])
	if len(r.figures[i]) == 1 {
		return number(median, m.digits)
	}
	return fmt.Sprintf("%s (%s–%s)", number(median, m.digits), number(least, m.digits), number(most, m.digits))
}

// number formats f with so many digits, and with commas at the thousands.
func number(f float64, digits int) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "–"
	}
	text := strconv.FormatFloat(f, 'f', digits, 64)
	whole, _, _ := strings.Cut(text, ".")
	for at := len(whole) - 3; at > 0 && whole[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
