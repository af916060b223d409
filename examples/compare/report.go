package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/internal/verify/laboratory"
)

// A report shows what a run has found, as text and as a page.
type report struct{ laboratory.Report }

// text prints the table, and what was seen; a single cell is told step by step.
func (r report) text(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "On %s, in %.1f s.\n\n", r.On, r.Took.Seconds())
	r.table(&b)
	if c := r.alone(); c != nil {
		b.WriteString("\n")
		for _, e := range c.Record.Story() {
			fmt.Fprintf(&b, "%7.3f s  %-8s  %s\n", e.At.Sub(c.Record.Began).Seconds(), e.Who, e.Text)
		}
		fmt.Fprintf(&b, "\n%s: %s\n", c.Outcome, c.Detail)
	} else {
		r.legend(&b)
		r.anomalies(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// alone is the only cell, if there is one only.
func (r report) alone() *laboratory.Cell {
	if len(r.Results) != 1 || len(r.Results[0].Cells) != 1 {
		return nil
	}
	return &r.Results[0].Cells[0]
}

// table has a line for each strategy. What was not measured or played has no column.
func (r report) table(b *strings.Builder) {
	head := append([]string{"strategy"}, r.speedHead()...)
	for _, sc := range r.Columns {
		head = append(head, sc.Name)
	}
	lines := [][]string{head}
	for _, row := range r.Results {
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
			switch isNumber := i > 0 && i <= len(r.speedHead()); {
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

// speedHead names the columns of what was measured. Times of embedded servers are not what a lock costs.
func (r report) speedHead() []string {
	counts := []string{"cmds", "trips"}
	switch {
	case !r.measured():
		return nil
	case r.NoTimes != "":
		return counts
	}
	return append(counts, "p50 µs", "p99 µs", "next ms")
}

func (r report) measured() bool {
	for _, row := range r.Results {
		if row.Speed != nil {
			return true
		}
	}
	return false
}

func (r report) line(row laboratory.Result, columns int) []string {
	line := []string{row.Row.Name}
	if s := row.Speed; s != nil {
		line = append(line, fmt.Sprint(s.Commands), fmt.Sprint(s.Trips), fmt.Sprint(s.P50.Microseconds()),
			fmt.Sprint(s.P99.Microseconds()), fmt.Sprintf("%.1f", s.HandOver.Seconds()*1000))[:1+len(r.speedHead())]
	}
	for _, c := range row.Cells {
		line = append(line, text(c))
	}
	for len(line) < columns {
		line = append(line, "")
	}
	return line
}

// text is that of a cell: the outcome, and after how long a lock was free again that its owner had.
func text(c laboratory.Cell) string {
	if c.Outcome == laboratory.Free && c.Scenario.Name == "crash" {
		return fmt.Sprintf("%s %.1f s", c.Outcome, c.Record.After.Seconds())
	}
	return string(c.Outcome)
}

// legend explains what is in the table, and why some is not.
func (r report) legend(b *strings.Builder) {
	b.WriteString("\n")
	for _, l := range r.explanations() {
		fmt.Fprintf(b, "  %-9s %s\n", l[0], l[1])
	}
	for _, row := range r.Results {
		if row.Why != "" {
			fmt.Fprintf(b, "  %s was left out: %s\n", row.Row.Name, row.Why)
		}
		for _, c := range row.Cells {
			if c.Outcome == laboratory.NotRun {
				fmt.Fprintf(b, "  %s of %s was not run: %s\n", c.Scenario.Name, c.Row, c.Detail)
			}
		}
	}
}

// explanations of columns and outcomes, of those that are there.
func (r report) explanations() (lines [][2]string) {
	if r.measured() {
		lines = append(lines,
			[2]string{"cmds", "commands of one Lock and Unlock of a free lock, to all servers"},
			[2]string{"trips", "round trips, one after the other: those to the server that has most"})
		if r.NoTimes != "" {
			lines = append(lines, [2]string{"times", "left out: " + r.NoTimes})
		} else {
			lines = append(lines,
				[2]string{"p50, p99", "Lock and Unlock of a free lock, one pair after the other"},
				[2]string{"next", "from Unlock to the Lock of a waiter on another Client, the median"})
		}
	}
	for _, sc := range r.Columns {
		lines = append(lines, [2]string{sc.Name, sc.About})
	}
	if len(r.Columns) == 0 {
		return lines
	}
	return append(lines,
		[2]string{string(laboratory.Safe), "others were refused for as long as someone held it"},
		[2]string{string(laboratory.Free), "the next one got it when the owner had died"},
		[2]string{string(laboratory.TwoHold), "two had a lease at once"},
		[2]string{string(laboratory.TwoWork), "the leases were apart, but the late one went on with its work, and its write landed"},
		[2]string{string(laboratory.Fenced), "as one of these two, but the resource refused the late write by its number"},
		[2]string{string(laboratory.Repaired), "locked for ever, unless a waiter of the same recipe comes"},
		[2]string{string(laboratory.ForEver), "locked until an operator deletes the key"},
		[2]string{string(laboratory.None), "there is no such thing: a single server can't restart twice at once"})
}

// anomalies has a line for each, which is the command that shows it alone.
func (r report) anomalies(b *strings.Builder) {
	var lines [][2]string
	width := 0
	for _, c := range r.seen() {
		lines = append(lines, [2]string{r.command(c), fmt.Sprintf("%s: %s", c.Outcome, c.Detail)})
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
func (r report) seen() (cells []laboratory.Cell) {
	for i := range r.Columns {
		for _, row := range r.Results {
			if i < len(row.Cells) && row.Cells[i].Outcome.IsAnomaly() {
				cells = append(cells, row.Cells[i])
			}
		}
	}
	return cells
}

func (r report) command(c laboratory.Cell) string {
	return fmt.Sprintf("go run ./examples/compare%s -only %s -strategy %s", r.Flags, c.Scenario.Name, c.Row)
}
