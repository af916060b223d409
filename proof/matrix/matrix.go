// Package matrix makes one table of the results of experiments: under which fault a strategy keeps
// its promise, is unavailable for a time, or breaks its promise. Tests report cells as attributes
// of their output. The program proof/runs reads them, prints the table, writes it into an artefact,
// and the cells of [Parts] into docs/matrix.md.
package matrix

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// attribute is the key under which a test reports a [Cell].
const attribute = "cell"

// Cell is the result of one experiment: one strategy under one fault.
type Cell struct {
	Strategy   string
	Fault      string
	Where      string // where it ran, such as "simulation" or "redis-server"
	Trials     int    // schedules, or operations
	Violations int    // trials with two holders at once, or a lost update
	Inverted   int    // trials in which numbers fell or repeated
	// the longest time in which the lock was unavailable, if it was measured
	Down    time.Duration
	Command string // runs the experiment again; see [Command]
}

// Verdict is the result of a cell in one letter.
type Verdict string

// The verdicts.
const (
	Safe        Verdict = "S" // no violation
	Unavailable Verdict = "U" // the lock was unavailable for a time, and no more
	// numbers fell or repeated, without two holders or with a guard that refused one of them
	Inverted Verdict = "N"
	Violated Verdict = "V" // two holders at once, or a lost update
)

// Verdict returns the verdict of the cell.
func (c Cell) Verdict() Verdict {
	switch {
	case c.Violations > 0:
		return Violated
	case c.Inverted > 0:
		return Inverted
	case c.Down > 0:
		return Unavailable
	}
	return Safe
}

// String returns the cell as it is in a table.
func (c Cell) String() string {
	switch c.Verdict() {
	case Violated:
		return fmt.Sprintf("V %d of %d", c.Violations, c.Trials)
	case Inverted:
		return fmt.Sprintf("N %d of %d", c.Inverted, c.Trials)
	case Unavailable:
		return fmt.Sprintf("U %v of %d", rounded(c.Down), c.Trials)
	}
	return fmt.Sprintf("S %d", c.Trials)
}

func rounded(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return max(d.Round(time.Millisecond), time.Millisecond)
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// Report writes a cell into the output of a test. The command of the cell must run this test.
func (c Cell) Report(t testing.TB) {
	t.Helper()
	if !selects(c.Command, t.Name()) {
		t.Errorf("the cell of %s under %s has a command that does not run %s: %q", c.Strategy, c.Fault, t.Name(), c.Command)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Attr(attribute, string(text))
}

// also joins commands.
const also = "; "

// Table has the results of several experiments. The zero value is empty.
type Table struct {
	cells   []Cell
	counted []counted
}

// Add adds an attribute of a test, and tells whether that was a cell. Cells of one strategy, fault
// and place become one: it has the sum of their trials, the longest time, and all commands.
func (t *Table) Add(key, value string) (bool, error) {
	if key != attribute {
		return false, nil
	}
	var c Cell
	if err := json.Unmarshal([]byte(value), &c); err != nil {
		return false, fmt.Errorf("cell %s: %w", value, err)
	}
	if c.Strategy == "" || c.Fault == "" || c.Trials < 1 || c.Command == "" {
		return false, fmt.Errorf("cell %s: no strategy, no fault, no trials or no command", value)
	}
	if old := t.same(c); old != nil {
		old.Trials += c.Trials
		old.Violations += c.Violations
		old.Inverted += c.Inverted
		old.Down = max(old.Down, c.Down)
		if !slices.Contains(strings.Split(old.Command, also), c.Command) {
			old.Command += also + c.Command
		}
		return true, nil
	}
	t.cells = append(t.cells, c)
	return true, nil
}

// same returns the cell of the same strategy, fault and place, or nil.
func (t *Table) same(c Cell) *Cell {
	i := slices.IndexFunc(t.cells, func(old Cell) bool {
		return old.Strategy == c.Strategy && old.Fault == c.Fault && old.Where == c.Where
	})
	if i < 0 {
		return nil
	}
	return &t.cells[i]
}

// Cells returns the cells, sorted by place, strategy and fault.
func (t *Table) Cells() []Cell {
	return slices.SortedFunc(slices.Values(t.cells), func(a, b Cell) int {
		return cmp.Or(cmp.Compare(b.Where, a.Where), cmp.Compare(a.Strategy, b.Strategy), cmp.Compare(a.Fault, b.Fault))
	})
}

// places returns where the experiments ran. Each place has its own table.
func (t *Table) places() []string { return distinct(t.Cells(), func(c Cell) string { return c.Where }) }

func distinct(cells []Cell, field func(Cell) string) (all []string) {
	for _, c := range cells {
		if !slices.Contains(all, field(c)) {
			all = append(all, field(c))
		}
	}
	return all
}

// grid is the part of a table for one place.
type grid struct {
	where              string
	strategies, faults []string
	cells              []Cell
}

func (t *Table) grids() (all []grid) {
	for _, where := range t.places() {
		g := grid{where: where}
		for _, c := range t.Cells() {
			if c.Where == where {
				g.cells = append(g.cells, c)
			}
		}
		g.strategies = distinct(g.cells, func(c Cell) string { return c.Strategy })
		g.faults = distinct(g.cells, func(c Cell) string { return c.Fault })
		slices.Sort(g.faults)
		all = append(all, g)
	}
	return all
}

// at returns the cell of a strategy and a fault, if there is one.
func (g grid) at(strategy, fault string) (Cell, bool) {
	i := slices.IndexFunc(g.cells, func(c Cell) bool { return c.Strategy == strategy && c.Fault == fault })
	if i < 0 {
		return Cell{}, false
	}
	return g.cells[i], true
}
