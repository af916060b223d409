package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

const page = "before\n" + begin + "old\n" + end + "after\n"

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

func TestTheMatrixIsPutBetweenTheMarksWithTheCommandThatMakesIt(t *testing.T) {
	file := pageOf(t, page)
	if err := publish(file, "make it", false, tableOf(t)); err != nil {
		t.Fatal(err)
	}
	text := read(t, file)
	if !strings.HasPrefix(text, "before\n"+begin+"Made on ") || !strings.HasSuffix(text, end+"after\n") || strings.Contains(text, "old") {
		t.Errorf("published:\n%s", text)
	}
	for _, want := range []string{", by `make it`.\n", "| single | S 7 |\n", "`go test ./p -run A` |\n"} {
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
	file := pageOf(t, page)
	if err := publish(file, "make all", false, first); err != nil {
		t.Fatal(err)
	}
	if err := publish(file, "make some", true, tableOf(t)); err != nil {
		t.Fatal(err)
	}
	text := read(t, file)
	for _, want := range []string{", by `make all`.\nSome cells are newer. Made on ", ", by `make some`.\n\n", "| single | S 7 |", "`go test ./p -run Other` |\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is not there once in\n%s", want, text)
		}
	}
}

func TestNothingIsPublishedWithoutMarksOrCells(t *testing.T) {
	for what, text := range map[string]string{
		"no marks": "before\nafter\n", "only the first": "before\n" + begin + "after\n", "only the second": "before\n" + end + "after\n",
		"in another order": end + begin,
	} {
		file := pageOf(t, text)
		if err := publish(file, "make it", false, tableOf(t)); err == nil || read(t, file) != text {
			t.Errorf("%s: %v, and the file is\n%s", what, err, read(t, file))
		}
	}
	file := pageOf(t, page)
	if err := publish(file, "make it", false, new(matrix.Table)); err == nil || read(t, file) != page {
		t.Errorf("no cells: %v, and the file is\n%s", err, read(t, file))
	}
}

func TestARunThatFailsPublishesNothingAndDoesNotKeepTheOthers(t *testing.T) {
	docs, html := pageOf(t, page), filepath.Join(t.TempDir(), "matrix.html")
	var out bytes.Buffer
	err := run(t.Context(), &out, [][]string{{"./nowhere"}, {"-run", "^TestAnAttributeThatIsNoCellIsPassedOver$", "."}}, output{html: html, docs: docs})
	if err == nil || !strings.Contains(err.Error(), "./nowhere") {
		t.Errorf("run = %v; want what has failed", err)
	}
	if !strings.Contains(out.String(), "1 passed") {
		t.Errorf("the second run is missing in\n%s", &out)
	}
	if read(t, docs) != page {
		t.Errorf("published:\n%s", read(t, docs))
	}
	if !strings.Contains(read(t, html), "<h1>") {
		t.Error("no page")
	}
}

func TestARunInAnotherModuleNamesItsDirectoryFirst(t *testing.T) {
	for want, args := range map[string][]string{
		"test -json -v ./p":               {"-v", "./p"},
		"test -C backends/pgx -json -v .": {"-C", "backends/pgx", "-v", "."},
		"test -json":                      nil,
	} {
		if got := strings.Join(command(args), " "); got != want {
			t.Errorf("go %s; want go %s", got, want)
		}
	}
}

func TestTwoDashesBeginAnotherRun(t *testing.T) {
	got := runs([]string{"-race", "./a", "--", "-timeout", "1h", "./b"})
	if want := [][]string{{"-race", "./a"}, {"-timeout", "1h", "./b"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
