package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/proof/laboratory"
)

// A report shows what a run has found, as text and as a page.
type report struct{ laboratory.Report }

// text prints the table, and what was seen; a single cell is told step by step.
func (r report) text(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "On %s, in %.1f s.\n\n", r.On, r.Took.Seconds())
	for i, t := range r.Tables {
		if len(r.Tables) > 1 {
			if i > 0 {
				b.WriteString("\n")
			}
			b.WriteString(t.Title + ":\n\n")
		}
		r.table(&b, t)
		if r.alone() == nil {
			explain(&b, r.notes(t))
			for _, l := range missing(t) {
				fmt.Fprintf(&b, "  %s %s\n", l[0], l[1])
			}
		}
	}
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
	if all := r.results(); len(all) == 1 && len(all[0].Cells) == 1 {
		return &all[0].Cells[0]
	}
	return nil
}

// table has a line for each strategy. What was not measured or played has no column.
func (r report) table(b *strings.Builder, t laboratory.Table) {
	head := r.head(t)
	lines := [][]string{head}
	for _, row := range t.Results {
		lines = append(lines, r.line(t, row))
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
			switch isNumber := i > 0 && i <= len(r.speedHead(t)); {
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

// head names the columns of a table.
func (r report) head(t laboratory.Table) []string {
	head := append([]string{"strategy"}, r.speedHead(t)...)
	for _, sc := range t.Columns {
		head = append(head, sc.Name)
	}
	return head
}

// speedHead names the columns of what was measured. Times of embedded servers are not what a lock costs.
func (r report) speedHead(t laboratory.Table) []string {
	counts := []string{"cmds", "trips"}
	switch {
	case !measured(t):
		return nil
	case r.NoTimes != "":
		return counts
	}
	return append(counts, "p50 µs", "p99 µs", "next ms")
}

func measured(t laboratory.Table) bool {
	return slices.ContainsFunc(t.Results, func(row laboratory.Result) bool { return row.Speed != nil })
}

// results are those of all tables.
func (r report) results() (all []laboratory.Result) {
	for _, t := range r.Tables {
		all = append(all, t.Results...)
	}
	return all
}

// columns are those of all tables, each once.
func (r report) columns() (all []string) {
	for _, t := range r.Tables {
		for _, sc := range t.Columns {
			if !slices.Contains(all, sc.Name) {
				all = append(all, sc.Name)
			}
		}
	}
	return all
}

func (r report) line(t laboratory.Table, row laboratory.Result) []string {
	line := []string{row.Row.Name}
	if s := row.Speed; s != nil {
		line = append(line, fmt.Sprint(s.Commands), fmt.Sprint(s.Trips), fmt.Sprint(s.P50.Microseconds()),
			fmt.Sprint(s.P99.Microseconds()), fmt.Sprintf("%.1f", s.HandOver.Seconds()*1000))[:1+len(r.speedHead(t))]
	}
	for _, c := range row.Cells {
		line = append(line, text(c))
	}
	for len(line) < len(r.head(t)) {
		line = append(line, "")
	}
	return line
}

// text is that of a cell: the outcome, and after how long a lock was free again that its owner had.
func text(c laboratory.Cell) string {
	if c.Outcome == laboratory.Free && c.Scenario.Name == "crash" && c.Record.After > 0 {
		return fmt.Sprintf("%s %.1f s", c.Outcome, c.Record.After.Seconds())
	}
	return string(c.Outcome)
}

// legend explains the verdicts of all tables.
func (r report) legend(b *strings.Builder) {
	explain(b, r.verdicts())
}

func explain(b *strings.Builder, lines [][2]string) {
	if len(lines) == 0 {
		return
	}
	width := 0
	for _, l := range lines {
		width = max(width, utf8.RuneCountInString(l[0]))
	}
	b.WriteString("\n")
	for _, l := range lines {
		fmt.Fprintf(b, "  %-*s  %s\n", width, l[0], l[1])
	}
}

// notes explain the columns and rows of a table.
func (r report) notes(t laboratory.Table) (lines [][2]string) {
	if measured(t) {
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
	for _, sc := range t.Columns {
		lines = append(lines, [2]string{sc.Name, sc.About})
	}
	for _, row := range t.Results {
		if row.Row.About != "" {
			lines = append(lines, [2]string{row.Row.Name, row.Row.About})
		}
	}
	return lines
}

// missing says why something is not in a table.
func missing(t laboratory.Table) (lines [][2]string) {
	for _, row := range t.Results {
		if row.Why != "" {
			lines = append(lines, [2]string{row.Row.Name, "was left out: " + row.Why})
		}
		for _, c := range row.Cells {
			if c.Outcome == laboratory.NotRun {
				lines = append(lines, [2]string{c.Scenario.Name, fmt.Sprintf("of %s was not run: %s", c.Row, c.Detail)})
			}
		}
	}
	return lines
}

// verdicts explain the outcomes that are there.
func (r report) verdicts() (lines [][2]string) {
	for _, v := range []struct {
		outcome laboratory.Outcome
		meaning string
	}{
		{laboratory.Safe, "others were refused for as long as someone held it; a job was not done twice"},
		{laboratory.Free, "the next one got it when the owner had died, or had ended its work"},
		{laboratory.TwoHold, "two had a lease at once"},
		{laboratory.TooMany, "more had a lease at once than there are permits"},
		{laboratory.TwoWork, "the leases were apart, but the late one went on with its work, and its write landed"},
		{laboratory.RanTwice, "two hosts did the same job"},
		{laboratory.Fenced, "two held or worked at once, but the resource refused the late write by its number"},
		{laboratory.Late, "the lease of a dead holder had ended, but others had renewed it with theirs"},
		{laboratory.Repaired, "locked for ever, unless a waiter of the same recipe comes"},
		{laboratory.ForEver, "locked until an operator deletes the key"},
		{laboratory.None, "there is no such thing with this row"},
	} {
		if slices.ContainsFunc(r.results(), func(row laboratory.Result) bool {
			return slices.ContainsFunc(row.Cells, func(c laboratory.Cell) bool { return c.Outcome == v.outcome })
		}) {
			lines = append(lines, [2]string{string(v.outcome), v.meaning})
		}
	}
	return lines
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
	for _, name := range r.columns() {
		for _, row := range r.results() {
			for _, c := range row.Cells {
				if c.Scenario.Name == name && c.Outcome.IsAnomaly() {
					cells = append(cells, c)
				}
			}
		}
	}
	return cells
}

func (r report) command(c laboratory.Cell) string {
	return fmt.Sprintf("go run ./proof/compare%s -only %s -strategy %s", r.Flags, c.Scenario.Name, c.Row)
}
