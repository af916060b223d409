package matrix

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// row is a line of the second table of [Table.Markdown].
var row = regexp.MustCompile("(?m)^\\| (.*?) \\| (.*?) \\| (.*?) \\| ([SUNV]) (.*?) \\| `(.*)` \\|$")

// Keep adds the cells and figures of a table that [Table.Markdown] has written, except those of an
// experiment or a test that the table has already.
func (t *Table) Keep(markdown string) error {
	for _, r := range row.FindAllStringSubmatch(markdown, -1) {
		c := Cell{Where: r[1], Strategy: r[2], Fault: r[3], Command: r[6]}
		if err := c.found(Verdict(r[4]), r[5]); err != nil {
			return fmt.Errorf("%q: %w", r[0], err)
		}
		if t.same(c) == nil {
			t.cells = append(t.cells, c)
		}
	}
	t.keepFigures(markdown)
	return nil
}

// found is the inverse of String.
func (c *Cell) found(v Verdict, text string) (err error) {
	part, trials, of := strings.Cut(text, " of ")
	if !of {
		trials = part
	}
	if c.Trials, err = strconv.Atoi(trials); err != nil {
		return err
	}
	switch v {
	case Unavailable:
		c.Down, err = time.ParseDuration(part)
	case Inverted:
		c.Inverted, err = strconv.Atoi(part)
	case Violated:
		c.Violations, err = strconv.Atoi(part)
	}
	return err
}
