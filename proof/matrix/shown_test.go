package matrix_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/stamp"
)

func add(t *testing.T, table *matrix.Table, c matrix.Cell) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if known, err := table.Add("cell", string(text)); !known || err != nil {
		t.Fatal(known, err)
	}
}

// cell is one of which no more is known than its letter.
func cell(where, strategy, fault, letter, command string) matrix.Cell {
	c := matrix.Cell{Where: where, Strategy: strategy, Fault: fault, Trials: 2, Command: command}
	switch matrix.Verdict(letter) {
	case matrix.Violated:
		c.Violations = 1
	case matrix.Inverted:
		c.Inverted = 1
	case matrix.Unavailable:
		c.Down = 1
	}
	return c
}

var (
	single = regexp.MustCompile("(?m)^\\| (.*?) \\| (.*?) \\| ([SUNV]) \\| `(.*)` \\|$")
	line   = regexp.MustCompile(`(?m)^\| (\S+) \| ([SUNV](?: \| [SUNV])*) \|$`)
	again  = regexp.MustCompile("(?m)^One of these cells: `(.*)`$")
)

// TestThePageHasEachCellThatItShows reads the letters of docs/matrix.md and writes the page again.
// Each part must be as make matrix writes it, with all its cells, and with a stamp.
func TestThePageHasEachCellThatItShows(t *testing.T) {
	text, err := os.ReadFile("../../docs/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, p := range matrix.Parts {
		_, rest, found := strings.Cut(string(text), "<!-- matrix: "+p.Where+", written by make matrix -->\n")
		part, _, closed := strings.Cut(rest, "<!-- end of "+p.Where+" -->\n")
		made, cells, _ := strings.Cut(part, "\n\n")
		if !found || !closed || len(stamp.Find(made)) != 1 || !strings.Contains(made, ", by `") {
			t.Errorf("the part of %s has no marks, or no stamp: %q", p.Where, made)
			continue
		}
		var table matrix.Table
		if command := again.FindStringSubmatch(cells); command != nil {
			for _, m := range single.FindAllStringSubmatch(cells, -1) {
				add(t, &table, cell(p.Where, m[1], m[2], m[3], strings.Replace(command[1], "TEST", m[4], 1)))
			}
			header, _, _ := strings.Cut(cells, "\n")
			faults := strings.Split(strings.Trim(header, "| "), " | ")
			for _, m := range line.FindAllStringSubmatch(cells, -1) {
				for i, letter := range strings.Split(m[2], " | ") {
					add(t, &table, cell(p.Where, m[1], faults[i], letter, strings.NewReplacer("STRATEGY", m[1], "FAULT", faults[i]).Replace(command[1])))
				}
			}
		}
		written, has, of, err := table.Show(p)
		if err != nil || has != of || written != cells {
			t.Errorf("%s: %d of %d cells, %v; the page has\n%s\nand make matrix writes\n%s", p.Where, has, of, err, cells, written)
		}
		shown += has
	}
	if shown != 62 {
		t.Errorf("the page shows %d cells; its text says 62", shown)
	}
}

func TestCellsOfAPartHaveOneCommand(t *testing.T) {
	for _, p := range matrix.Parts {
		var table matrix.Table
		for i, key := range p.Cells() {
			command := "go test ./p -run '^TestA$' -strategy " + key[0] + " -fault " + key[1] + " -v"
			if p.Where != "simulation" {
				command = fmt.Sprintf("go test ./p -run '^Test%d$' -v", i)
			}
			if i == 1 {
				command = strings.Replace(command, "./p", "./q", 1)
			}
			add(t, &table, cell(p.Where, key[0], key[1], "S", command))
		}
		if text, _, _, err := table.Show(p); err == nil {
			t.Errorf("one of the commands of %s differs, and nothing is said:\n%s", p.Where, text)
		}
	}
}

func TestNothingIsShownOfAPartThatLacksACell(t *testing.T) {
	for _, p := range matrix.Parts {
		var table matrix.Table
		for _, key := range p.Cells()[1:] {
			add(t, &table, cell(p.Where, key[0], key[1], "S", "go test ./p -run A"))
		}
		if text, has, of, err := table.Show(p); text != "" || has != of-1 || err != nil {
			t.Errorf("%s: %q, %d of %d, %v", p.Where, text, has, of, err)
		}
	}
}
