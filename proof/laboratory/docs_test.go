package laboratory

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestTheTableIsThatOfTheDocumentation reads the tables of anomalies in docs/safety.md and in anomalies.md:
// those that have our columns.
func TestTheTableIsThatOfTheDocumentation(t *testing.T) {
	const pages = "docs/safety.md and anomalies.md"
	page, err1 := os.ReadFile("../../docs/safety.md")
	more, err2 := os.ReadFile("anomalies.md")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	text := string(page) + "\n" + string(more)
	documented := Matrix{}
	var names []string
	for l := range strings.Lines(text) {
		fields := fieldsOf(l)
		switch {
		case slices.ContainsFunc(headers(), func(h []string) bool { return slices.Equal(h, fields) }):
			names = fields[1:]
		case len(names) == 0 || len(fields) > 0 && strings.HasPrefix(fields[0], "---"):
		case len(fields) != len(names)+1:
			names = nil // the table is over
		default:
			cells := map[string]Outcome{}
			for i, name := range names {
				cells[name] = Outcome(fields[i+1])
			}
			documented[fields[0]] = cells
		}
	}
	if n := len(RowNames()); len(documented) != n || len(Expected) != n {
		t.Errorf("%s have %d strategies, %d are expected, and there are %d", pages, len(documented), len(Expected), n)
	}
	for _, name := range RowNames() {
		if !maps.Equal(documented[name], Expected[name]) {
			t.Errorf("%s: %s say %v, expected is %v", name, pages, documented[name], Expected[name])
		}
	}
	for _, column := range Columns() {
		if row := "\n| " + column + " | "; column != SpeedColumn && !strings.Contains(text, row) {
			t.Errorf("%s do not say what happens in the column %q", pages, column)
		}
	}
	if command := "go run ./proof/compare -only COLUMN"; !strings.Contains(text, command) {
		t.Errorf("%s do not say %q", pages, command)
	}
}

// headers are the first lines of the tables.
func headers() (all [][]string) {
	for _, t := range tables {
		names := []string{"strategy"}
		for _, sc := range t.scenarios {
			names = append(names, sc.Name)
		}
		all = append(all, names)
	}
	return all
}

// fieldsOf are those of a line of a table, without their marks.
func fieldsOf(line string) (fields []string) {
	line, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !isRow {
		return nil
	}
	for f := range strings.SplitSeq(strings.TrimSuffix(line, "|"), "|") {
		fields = append(fields, strings.Trim(strings.TrimSpace(f), "`*"))
	}
	return fields
}
