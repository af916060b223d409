package matrix_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

func table(t *testing.T) *matrix.Table {
	t.Helper()
	var all matrix.Table
	for _, c := range []matrix.Cell{
		{Strategy: "single", Fault: "restart", Where: "simulation", Trials: 300, Violations: 30, Command: "go test -run V"},
		{Strategy: "single", Fault: "none", Where: "simulation", Trials: 200, Command: "go test -run S"},
		{Strategy: "redlock 4/5", Fault: "restart", Where: "simulation", Trials: 100, Down: 2300 * time.Millisecond, Command: "go test -run U"},
		{Strategy: "redlock 4/5", Fault: "restart", Where: "simulation", Trials: 50, Down: time.Second, Command: "go test -run U2"},
		{Strategy: "redlock 4/5", Fault: "restart", Where: "simulation", Trials: 50, Command: "go test -run U"},
		{Strategy: "numbered", Fault: "restart", Where: "simulation", Trials: 80, Inverted: 3, Down: time.Second, Command: "go test -run N"},
		{Strategy: "numbered", Fault: "none", Where: "simulation", Trials: 80, Inverted: 3, Violations: 1, Command: "go test -run N"},
		{Strategy: "single", Fault: "restart", Where: "redis-server", Trials: 5, Command: "go test -run R"},
	} {
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if known, err := all.Add("cell", string(value)); !known || err != nil {
			t.Fatalf("Add = %v, %v", known, err)
		}
	}
	return &all
}

func TestCellsOfOneExperimentAreOne(t *testing.T) {
	var found []string
	for _, c := range table(t).Cells() {
		found = append(found, c.Where+", "+c.Strategy+", "+c.Fault+": "+c.String())
	}
	want := `simulation, numbered, none: V 1 of 80
simulation, numbered, restart: N 3 of 80
simulation, redlock 4/5, restart: U 2.3s of 200
simulation, single, none: S 200
simulation, single, restart: V 30 of 300
redis-server, single, restart: S 5`
	if got := strings.Join(found, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestOtherAttributesAreNoCells(t *testing.T) {
	var all matrix.Table
	if known, err := all.Add("colour", "red"); known || err != nil {
		t.Errorf("Add = %v, %v", known, err)
	}
	for _, bad := range []string{"", "{}", `{"Strategy":"single","Fault":"none","Command":"go test"}`, `{"Strategy":"single","Fault":"none","Trials":1}`, "red"} {
		if known, err := all.Add("cell", bad); known || err == nil {
			t.Errorf("Add(%q) = %v, %v; want an error", bad, known, err)
		}
	}
}

func TestTheTableInTextAndInMarkdown(t *testing.T) {
	var text, markdown bytes.Buffer
	if err := table(t).Text(&text); err != nil {
		t.Fatal(err)
	}
	if want := `
on simulation

             none       restart
numbered     V 1 of 80  N 3 of 80
redlock 4/5             U 2.3s of 200
single       S 200      V 30 of 300

on redis-server

        restart
single  S 5
`; text.String() != want {
		t.Errorf("got\n%swant\n%s", &text, want)
	}
	if err := table(t).Markdown(&markdown); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"On simulation:\n\n| | none | restart |\n|---|---|---|\n| numbered | V 1 of 80 | N 3 of 80 |\n| redlock 4/5 |  | U 2.3s of 200 |\n| single | S 200 | V 30 of 300 |\n",
		"| simulation | redlock 4/5 | restart | U 2.3s of 200 | `go test -run U; go test -run U2` |\n",
		"| redis-server | single | restart | S 5 | `go test -run R` |\n",
	} {
		if !strings.Contains(markdown.String(), want) {
			t.Errorf("no\n%s\nin\n%s", want, &markdown)
		}
	}
}

func TestThePageHasAPictureOfEachPlace(t *testing.T) {
	var page bytes.Buffer
	if err := table(t).Page(&page, "Faults & strategies", "Made at <once>"); err != nil {
		t.Fatal(err)
	}
	// the name space of SVG
	if strings.Contains(page.String(), "<script") || strings.Count(page.String(), "http") != 2 {
		t.Error("the page needs the network or a script")
	}
	pictures := strings.Split(page.String(), "<svg")[1:]
	if len(pictures) != 2 {
		t.Fatalf("%d pictures", len(pictures))
	}
	for _, p := range pictures {
		if err := xml.Unmarshal([]byte("<svg"+strings.Split(p, "</svg>")[0]+"</svg>"), new(struct{})); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"Faults &amp; strategies", "<p>Made at &lt;once&gt;</p>", ">U 2.3s of 200<", "#c8402f"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

// testdata/matrix.md has the cells of three places, as a run of make matrix had them.
func TestKeptCellsAreWrittenAsTheyWere(t *testing.T) {
	written, err := os.ReadFile("testdata/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	var table matrix.Table
	if err := table.Keep(string(written)); err != nil {
		t.Fatal(err)
	}
	var again strings.Builder
	if err := table.Markdown(&again); err != nil {
		t.Fatal(err)
	}
	if len(table.Cells()) < 200 || string(written) != again.String() {
		t.Errorf("%d cells are kept, and they are not as they were:\n%s", len(table.Cells()), again.String())
	}
}

func TestAKeptCellDoesNotReplaceANewOne(t *testing.T) {
	all := table(t)
	before := len(all.Cells())
	err := all.Keep("| simulation | single | none | S 8 | `go test ./p` |\n| simulation | single | net | V 2 of 8 | `go test ./p` |\n")
	if err != nil {
		t.Fatal(err)
	}
	kept := matrix.Cell{Strategy: "single", Fault: "net", Where: "simulation", Trials: 8, Violations: 2, Command: "go test ./p"}
	if cells := all.Cells(); len(cells) != before+1 || !slices.Contains(cells, kept) {
		t.Errorf("the cells are %+v; want %+v and the %d before", cells, kept, before)
	}
}

func TestACellThatCannotBeReadIsAnError(t *testing.T) {
	for _, found := range []string{"S many", "V 2 of many", "U long of 3", "N x of 3"} {
		if err := new(matrix.Table).Keep("| simulation | single | none | " + found + " | `go test ./p` |"); err == nil {
			t.Errorf("%s is no error", found)
		}
	}
}
