package laboratory

import (
	"maps"
	"os"
	"strings"
	"testing"
)

// TestTheTableIsThatOfTheDocumentation reads the table of anomalies in docs/safety.md: the one that has our columns.
func TestTheTableIsThatOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/safety.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := Matrix{}
	var names []string
	for l := range strings.Lines(string(text)) {
		fields := fieldsOf(l)
		switch {
		case len(fields) == len(scenarios)+1 && fields[0] == "strategy":
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
	if len(documented) != len(rows) || len(Expected) != len(rows) {
		t.Errorf("docs/safety.md has %d strategies, %d are expected, and there are %d", len(documented), len(Expected), len(rows))
	}
	for _, r := range rows {
		if !maps.Equal(documented[r.Name], Expected[r.Name]) {
			t.Errorf("%s: docs/safety.md says %v, expected is %v", r.Name, documented[r.Name], Expected[r.Name])
		}
	}
	for _, sc := range scenarios {
		if command := "go run ./examples/compare -only " + sc.Name; !strings.Contains(string(text), command) {
			t.Errorf("docs/safety.md does not say %q", command)
		}
	}
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
