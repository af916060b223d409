package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A report is what a run has found.
type report struct {
	on      string // which servers
	again   string // flags that choose them
	slow    string // why the times of these say little
	took    time.Duration
	columns []scenario
	results []result
}

// fault tells of cells that are not as expected.
func (r report) fault(want matrix) error {
	var errs []error
	for _, row := range r.results {
		for _, c := range row.cells {
			if w := want[row.row.name][c.scenario.name]; c.outcome != w && c.outcome != skipped {
				errs = append(errs, fmt.Errorf("%s, %s: %s (%s); docs/safety.md says %s", c.row, c.scenario.name, c.outcome, c.detail, w))
			}
		}
	}
	return errors.Join(errs...)
}

// nothing tells why nothing was run, if that is so: a table without a result is not what was asked for.
func (r report) nothing() error {
	var why []string
	for _, row := range r.results {
		if row.speed != nil {
			return nil
		}
		if row.why != "" {
			why = append(why, row.why)
		}
		for _, c := range row.cells {
			switch c.outcome {
			case none:
			case skipped:
				why = append(why, c.detail)
			default:
				return nil
			}
		}
	}
	if len(why) == 0 {
		return nil
	}
	slices.Sort(why)
	return fmt.Errorf("nothing was run: %s", strings.Join(slices.Compact(why), "; "))
}

// text prints the table, and what was seen; a single cell is told step by step.
func (r report) text(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "On %s, in %.1f s.\n\n", r.on, r.took.Seconds())
	r.table(&b)
	if c := r.alone(); c != nil {
		b.WriteString("\n")
		for _, e := range c.record.story() {
			fmt.Fprintf(&b, "%7.3f s  %-8s  %s\n", e.at.Sub(c.record.began).Seconds(), e.who, e.text)
		}
		fmt.Fprintf(&b, "\n%s: %s\n", c.outcome, c.detail)
	} else {
		r.legend(&b)
		r.anomalies(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// alone is the only cell, if there is one only.
func (r report) alone() *cell {
	if len(r.results) != 1 || len(r.results[0].cells) != 1 {
		return nil
	}
	return &r.results[0].cells[0]
}

// table has a line for each strategy. What was not measured or played has no column.
func (r report) table(b *strings.Builder) {
	head := []string{"strategy"}
	if r.measured() {
		head = append(head, speedHead...)
	}
	for _, sc := range r.columns {
		head = append(head, sc.name)
	}
	lines := [][]string{head}
	for _, row := range r.results {
		lines = append(lines, r.line(row, len(head)))
	}
	widths := make([]int, len(head))
	for _, line := range lines {
		for i, field := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(field))
		}
	}
	for _, line := range lines {
		var text strings.Builder
		for i, field := range line {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(field))
			switch isNumber := r.measured() && i > 0 && i <= len(speedHead); {
			case i == 0:
				text.WriteString(field + gap)
			case isNumber:
				text.WriteString(" " + gap + field)
			default:
				text.WriteString("  " + field + gap)
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
}

var speedHead = []string{"cmds", "trips", "p50 µs", "p99 µs", "next ms"}

func (r report) measured() bool {
	for _, row := range r.results {
		if row.speed != nil {
			return true
		}
	}
	return false
}

func (r report) line(row result, columns int) []string {
	line := []string{row.row.name}
	if s := row.speed; s != nil {
		line = append(line, fmt.Sprint(s.commands), fmt.Sprint(s.trips), fmt.Sprint(s.p50.Microseconds()),
			fmt.Sprint(s.p99.Microseconds()), fmt.Sprintf("%.1f", s.handOver.Seconds()*1000))
	}
	for _, c := range row.cells {
		line = append(line, c.text())
	}
	for len(line) < columns {
		line = append(line, "")
	}
	return line
}

// text of a cell: the outcome, and after how long a lock was free again that its owner had.
func (c cell) text() string {
	if c.outcome == free && c.scenario.name == "crash" {
		return fmt.Sprintf("%s %.1f s", c.outcome, c.record.after.Seconds())
	}
	return string(c.outcome)
}

// legend explains what is in the table, and why some is not.
func (r report) legend(b *strings.Builder) {
	b.WriteString("\n")
	for _, l := range r.explanations() {
		fmt.Fprintf(b, "  %-9s %s\n", l[0], l[1])
	}
	for _, row := range r.results {
		if row.why != "" {
			fmt.Fprintf(b, "  %s was left out: %s\n", row.row.name, row.why)
		}
		for _, c := range row.cells {
			if c.outcome == skipped {
				fmt.Fprintf(b, "  %s of %s was not run: %s\n", c.scenario.name, c.row, c.detail)
			}
		}
	}
}

// explanations of columns and outcomes, of those that are there.
func (r report) explanations() (lines [][2]string) {
	if r.measured() {
		lines = append(lines,
			[2]string{"cmds", "commands of one Lock and Unlock of a free lock, to all servers"},
			[2]string{"trips", "round trips, one after the other: those to the server that has most"},
			[2]string{"p50, p99", "Lock and Unlock of a free lock, one pair after the other"},
			[2]string{"next", "from Unlock to the Lock of a waiter on another Client, the median"})
		if r.slow != "" {
			lines = append(lines, [2]string{"embedded", r.slow})
		}
	}
	for _, sc := range r.columns {
		lines = append(lines, [2]string{sc.name, sc.about})
	}
	if len(r.columns) == 0 {
		return lines
	}
	return append(lines,
		[2]string{string(safe), "others were refused for as long as someone held it"},
		[2]string{string(free), "the next one got it when the owner had died"},
		[2]string{string(twoHold), "two had a lease at once"},
		[2]string{string(twoWork), "the leases were apart, but the late one went on with its work, and its write landed"},
		[2]string{string(fencedOff), "as one of these two, but the resource refused the late write by its number"},
		[2]string{string(repaired), "locked for ever, unless a waiter of the same recipe comes"},
		[2]string{string(forEver), "locked until an operator deletes the key"},
		[2]string{string(none), "there is no such thing: a single server can't restart twice at once"})
}

// anomalies has a line for each, which is the command that shows it alone.
func (r report) anomalies(b *strings.Builder) {
	var lines [][2]string
	width := 0
	for _, c := range r.seen() {
		lines = append(lines, [2]string{r.command(c), fmt.Sprintf("%s: %s", c.outcome, c.detail)})
		width = max(width, len(lines[len(lines)-1][0]))
	}
	if len(lines) == 0 {
		return
	}
	b.WriteString("\nSeen, with the command that shows it alone:\n\n")
	for _, l := range lines {
		fmt.Fprintf(b, "%-*s  # %s\n", width, l[0], l[1])
	}
}

// seen are the cells with something to show, by column.
func (r report) seen() (cells []cell) {
	for i := range r.columns {
		for _, row := range r.results {
			if i < len(row.cells) && row.cells[i].outcome.isAnomaly() {
				cells = append(cells, row.cells[i])
			}
		}
	}
	return cells
}

func (r report) command(c cell) string {
	return fmt.Sprintf("go run ./examples/compare%s -only %s -strategy %s", r.again, c.scenario.name, c.row)
}
