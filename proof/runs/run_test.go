package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/ledger"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/stamp"
)

// page has marks for all parts, and in them what is older.
var page = func() string {
	text := "before\n"
	for _, p := range matrix.Parts {
		begin, end := marks(p.Where)
		text += begin + "old " + p.Where + "\n" + end
	}
	return text + "after\n"
}()

func pageOf(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func tableOf(t *testing.T) *matrix.Table {
	t.Helper()
	_, _, table, err := followed(t, reported(t, aCell))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// partOf is a table with the cells that the page shows of a place, or all but one of them.
func partOf(t *testing.T, where string, but int) *matrix.Table {
	t.Helper()
	var table matrix.Table
	for _, p := range matrix.Parts {
		if p.Where != where {
			continue
		}
		for _, key := range p.Cells()[but:] {
			c := matrix.Cell{Strategy: key[0], Fault: key[1], Where: where, Trials: 7, Violations: 2, Command: "go test ./p -run 'A'"}
			text, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if known, err := table.Add("cell", string(text)); !known || err != nil {
				t.Fatal(known, err)
			}
		}
	}
	return &table
}

func TestThePartsThatARunHasMadeAreReplacedAndNoOther(t *testing.T) {
	for _, p := range matrix.Parts {
		file := pageOf(t, page)
		if err := publish(io.Discard, file, "Made now.\n", partOf(t, p.Where, 0)); err != nil {
			t.Fatal(err)
		}
		text := read(t, file)
		begin, end := marks(p.Where)
		before, rest, _ := strings.Cut(text, begin)
		part, after, _ := strings.Cut(rest, end)
		command := "`go test ./p -run 'TEST'`"
		if p.Where == "simulation" {
			command = "`go test ./p -run 'A'`"
		}
		if !strings.HasPrefix(part, "Made now.\n\n| ") || strings.Count(part, " V |") != len(p.Cells()) || !strings.Contains(part, command) {
			t.Errorf("%s:\n%s", p.Where, part)
		}
		if before+begin+"old "+p.Where+"\n"+end+after != page {
			t.Errorf("%s: the page has changed outside of its marks:\n%s", p.Where, text)
		}
	}
}

func TestAPartOfWhichARunLacksACellIsKeptAndNamed(t *testing.T) {
	for _, p := range matrix.Parts {
		file := pageOf(t, page)
		var out bytes.Buffer
		if err := publish(&out, file, "Made now.\n", partOf(t, p.Where, 1)); err != nil {
			t.Fatal(err)
		}
		if read(t, file) != page || !strings.Contains(out.String(), "older cells of "+p.Where) {
			t.Errorf("%s: %q, and the page is\n%s", p.Where, &out, read(t, file))
		}
	}
}

func TestTheArtefactHasEachCellAndTheCommandThatMakesIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "matrix.md")
	if err := keep(file, "Made now.\n", false, tableOf(t)); err != nil {
		t.Fatal(err)
	}
	text := read(t, file)
	for _, want := range []string{head + begin + "Made now.\n\n", "| single | S 7 |\n", "`go test ./p -run A` |\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestCellsThatAreNotMadeAgainAreKept(t *testing.T) {
	other := matrix.Cell{Strategy: "other", Fault: "none", Where: "simulation", Trials: 9, Command: "go test ./p -run Other"}
	_, _, first, err := followed(t, reported(t, aCell), reported(t, other))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "matrix.md")
	if err := keep(file, "Made first.\n", true, first); err != nil { // there is nothing yet to keep
		t.Fatal(err)
	}
	if err := keep(file, "Made later.\n", true, tableOf(t)); err != nil {
		t.Fatal(err)
	}
	text := read(t, file)
	for _, want := range []string{begin + "Made first.\nSome cells are newer. Made later.\n\n", "| single | S 7 |", "`go test ./p -run Other` |\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not there once in\n%s", want, text)
		}
	}
	if err := keep(file, "Made at last.\n", false, tableOf(t)); err != nil {
		t.Fatal(err)
	}
	if text := read(t, file); strings.Contains(text, "Other") || strings.Contains(text, "first") {
		t.Errorf("it has kept\n%s", text)
	}
}

func TestNothingIsWrittenWithoutMarksOrCells(t *testing.T) {
	first, firstEnd := marks(matrix.Parts[0].Where)
	last, lastEnd := marks(matrix.Parts[len(matrix.Parts)-1].Where)
	for what, text := range map[string]string{
		"no marks": "before\nafter\n", "one begin is missing": strings.Replace(page, first, "", 1), "one end is missing": strings.Replace(page, lastEnd, "", 1),
		"in another order": strings.Replace(page, last, firstEnd, 1),
	} {
		file := pageOf(t, text)
		if err := publish(io.Discard, file, "Made now.\n", tableOf(t)); err == nil || read(t, file) != text {
			t.Errorf("%s: %v, and the file is\n%s", what, err, read(t, file))
		}
	}
	file := pageOf(t, page)
	if err := publish(io.Discard, file, "Made now.\n", new(matrix.Table)); err == nil || read(t, file) != page {
		t.Errorf("no cells: %v, and the file is\n%s", err, read(t, file))
	}
	if err := keep(file, "Made now.\n", false, new(matrix.Table)); err == nil || read(t, file) != page {
		t.Errorf("no cells: %v, and the file is\n%s", err, read(t, file))
	}
	if err := keep(file, "Made now.\n", true, tableOf(t)); err == nil || read(t, file) != page {
		t.Errorf("to be kept is no matrix: %v, and the file is\n%s", err, read(t, file))
	}
}

// What is written says when it was made, of which commit, with which versions and by which command.
func TestWhatIsMadeIsStamped(t *testing.T) {
	line := made("make it")
	if found := stamp.Find(line); len(found) != 1 || !strings.HasSuffix(line, ", by `make it`.\n") {
		t.Errorf("stamps %v in %s", found, line)
	}
	for _, want := range []string{"redis-server", runtime.Version()} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
}

// The versions of the servers that the tests have in their own process stand in go.mod files.
func TestWhatIsMadeNamesTheEmbeddedServers(t *testing.T) {
	t.Chdir("../..")
	for _, e := range embedded {
		if named := regexp.MustCompile(e.name + ` \d+\.\d+\.\d+(,|$)`); !named.MatchString(versions()) {
			t.Errorf("%q does not name the version of %s", versions(), e.name)
		}
	}
}

func TestARunThatFailsPublishesNothingAndDoesNotKeepTheOthers(t *testing.T) {
	docs, html, whole := pageOf(t, page), filepath.Join(t.TempDir(), "matrix.html"), filepath.Join(t.TempDir(), "matrix.md")
	var out bytes.Buffer
	book, err := ledger.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = makeMatrix(t.Context(), &out, book, [][]string{{"./nowhere"}, {"-run", "^TestAnAttributeThatIsNoCellIsPassedOver$", "."}}, output{html: html, docs: docs, whole: whole})
	if err == nil || !strings.Contains(err.Error(), "./nowhere") {
		t.Errorf("run = %v; want what has failed", err)
	}
	if !strings.Contains(out.String(), "1 passed") {
		t.Errorf("the second run is missing in\n%s", &out)
	}
	if read(t, docs) != page {
		t.Errorf("published:\n%s", read(t, docs))
	}
	if _, err := os.Stat(whole); !os.IsNotExist(err) {
		t.Errorf("the artefact: %v", err)
	}
	if text := read(t, html); !strings.Contains(text, "<h1>") || len(stamp.Find(text)) != 1 {
		t.Error("no page, or no stamp on it")
	}
}

func TestARunInAnotherModuleNamesItsDirectoryFirst(t *testing.T) {
	for want, args := range map[string][]string{
		"test -json -v ./p":                             {"-v", "./p"},
		"test -C backends/pgxstore -json -v .":          {"-C", "backends/pgxstore", "-v", "."},
		"test -C backends/pgxstore -json -count=1 -v .": {"-count=1", "-C", "backends/pgxstore", "-v", "."},
		"test -json": nil,
	} {
		if got := strings.Join(command(args), " "); got != want {
			t.Errorf("go %s; want go %s", got, want)
		}
	}
}

func TestTwoDashesBeginAnotherRun(t *testing.T) {
	got := split([]string{"-race", "./a", "--", "-timeout", "1h", "./b"})
	if want := [][]string{{"-race", "./a"}, {"-timeout", "1h", "./b"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
