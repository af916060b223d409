package matrix

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Text writes the table for a terminal.
func (t *Table) Text(w io.Writer) error {
	for _, g := range t.grids() {
		var text strings.Builder
		fmt.Fprintf(&text, "\t%s\n", strings.Join(g.faults, "\t"))
		for _, strategy := range g.strategies {
			fmt.Fprintf(&text, "%s\t%s\n", strategy, strings.Join(g.row(strategy), "\t"))
		}
		_, title := fmt.Fprintf(w, "\non %s\n\n", g.where)
		aligned := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, rows := io.WriteString(aligned, text.String())
		if err := errors.Join(title, rows, aligned.Flush()); err != nil {
			return err
		}
	}
	return nil
}

// Markdown writes the whole table, with the commands, and the figures of tests.
func (t *Table) Markdown(w io.Writer) error {
	var text strings.Builder
	for _, g := range t.grids() {
		fmt.Fprintf(&text, "On %s:\n\n| | %s |\n|---|%s\n", g.where, strings.Join(g.faults, " | "), strings.Repeat("---|", len(g.faults)))
		for _, strategy := range g.strategies {
			fmt.Fprintf(&text, "| %s | %s |\n", strategy, strings.Join(g.row(strategy), " | "))
		}
		text.WriteString("\n")
	}
	text.WriteString("| on | strategy | fault | found | command |\n|---|---|---|---|---|\n")
	for _, c := range t.Cells() {
		fmt.Fprintf(&text, "| %s | %s | %s | %v | `%s` |\n", c.Where, c.Strategy, c.Fault, c, c.Command)
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return err
	}
	return t.figures(w)
}

func (g grid) row(strategy string) (texts []string) {
	for _, fault := range g.faults {
		text := ""
		if c, ok := g.at(strategy, fault); ok {
			text = c.String()
		}
		texts = append(texts, text)
	}
	return texts
}
