package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

// followed returns what follow makes of lines of `go test -json`.
func followed(t *testing.T, lines ...string) (shown string, p *progress, table *matrix.Table, err error) {
	t.Helper()
	f, shown, err := follows(lines...)
	return shown, f.progress, &f.table, err
}

func follows(lines ...string) (f *follower, shown string, err error) {
	var out bytes.Buffer
	f = &follower{progress: newProgress(&out, time.Now())}
	f.progress.shown = time.Now() // otherwise it shows the progress
	err = f.follow(bufio.NewReader(strings.NewReader(strings.Join(lines, "\n"))))
	return f, out.String(), err
}

// reported is the line of a cell.
func reported(t *testing.T, c matrix.Cell) string {
	t.Helper()
	cell, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(event{Action: "attr", Package: "p", Test: "TestA", Key: "cell", Value: string(cell)})
	if err != nil {
		t.Fatal(err)
	}
	return string(line)
}

var aCell = matrix.Cell{Strategy: "single", Fault: "none", Where: "simulation", Trials: 7, Command: "go test ./p -run A"}

func TestProgressCountsWhatHasEndedAndWhatRuns(t *testing.T) {
	_, p, table, err := followed(t,
		`{"Action":"start","Package":"p"}`,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"run","Package":"p","Test":"TestB"}`,
		`{"Action":"run","Package":"p","Test":"TestC"}`,
		`{"Action":"run","Package":"p","Test":"TestD"}`,
		`{"Action":"run","Package":"p","Test":"TestE"}`,
		`{"Action":"run","Package":"p","Test":"TestF"}`,
		`{"Action":"pause","Package":"p","Test":"TestE"}`,
		`{"Action":"pause","Package":"p","Test":"TestF"}`,
		`{"Action":"cont","Package":"p","Test":"TestF"}`,
		reported(t, aCell), reported(t, aCell),
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p","Test":"TestB"}`,
		`{"Action":"skip","Package":"p","Test":"TestC"}`,
		`{"Action":"pass","Package":"q"}`, // not a test
	)
	if err != nil {
		t.Error(err)
	}
	if got, want := p.String(), "  2 passed, 0 failed, 1 skipped, 2 running, 2 cells  q"; !strings.HasSuffix(got, want) {
		t.Errorf("%s; want %s", got, want)
	}
	if cells := table.Cells(); len(cells) != 1 || cells[0].Trials != 14 {
		t.Errorf("cells: %v", cells)
	}
}

// When the time of a package is over, none of its tests that run has an end.
func TestThePanicOfAPackageWhoseTimeIsOverIsShown(t *testing.T) {
	shown, _, _, err := followed(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out after 20m0s\n"}`,
		`{"Action":"run","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"it has passed\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestB"}`,
		`{"Action":"run","Package":"pq","Test":"TestC"}`,
		`{"Action":"output","Package":"pq","Test":"TestC","Output":"it runs\n"}`,
		`{"Action":"output","Package":"p","Output":"FAIL p 1200s\n"}`,
		`{"Action":"fail","Package":"p"}`,
	)
	if want := "panic: test timed out after 20m0s\nFAIL p 1200s\n"; err != nil || !strings.Contains(shown, want) || strings.Contains(shown, "passed\n") || strings.Contains(shown, "runs\n") {
		t.Errorf("%v: %q; want %q", err, shown, want)
	}
}

func TestWhatATestHasCountedIsKeptWithTheName(t *testing.T) {
	_, p, table, err := followed(t, reported(t, aCell),
		`{"Action":"attr","Package":"p","Test":"TestCuts/always","Key":"figures","Value":"50 cuts took 7 | 8 bytes"}`)
	if err != nil || p.cells != 1 {
		t.Errorf("%v, %d cells", err, p.cells)
	}
	var text strings.Builder
	if err := table.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	if row := "| `p.TestCuts/always` | 50 cuts took 7 / 8 bytes |\n"; !strings.HasSuffix(text.String(), row) {
		t.Errorf("no %q at the end of\n%s", row, &text)
	}
}

func TestWhatAFailedTestHasPrintedIsShownAndNothingOfOthers(t *testing.T) {
	shown, p, _, err := followed(t,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"run","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"one\n"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"other\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"two\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestB"}`,
		`{"Action":"fail","Package":"p","Test":"TestA"}`,
	)
	if err != nil || shown != "one\ntwo\n" || p.done["fail"] != 1 {
		t.Errorf("%v, %d failed, shown: %q", err, p.done["fail"], shown)
	}
}

func TestWhatIsNoEventIsShown(t *testing.T) {
	shown, _, _, err := followed(t,
		"go: downloading something\n"+`{"Action":"build-output","ImportPath":"p","Output":"# p\n"}`,
		`{"Action":"no such action","Package":"p"}`,
		"panic: at last", // without an end of line
	)
	if want := "go: downloading something\n# p\npanic: at last"; err != nil || shown != want {
		t.Errorf("%v, shown: %q; want %q", err, shown, want)
	}
}

func TestAnAttributeThatIsNoCellIsPassedOver(t *testing.T) {
	_, p, table, err := followed(t, `{"Action":"attr","Package":"p","Test":"TestA","Key":"colour","Value":"red"}`)
	if err != nil || p.cells != 0 || len(table.Cells()) != 0 {
		t.Errorf("%v, %d cells, %v", err, p.cells, table.Cells())
	}
}

// If the reader stopped, go test would wait for it, and this program for go test.
func TestABadCellIsAnErrorAndTheRestIsReadAllTheSame(t *testing.T) {
	in, out := io.Pipe()
	cell := reported(t, aCell)
	go func() {
		fmt.Fprintln(out, `{"Action":"attr","Package":"p","Test":"TestA","Key":"cell","Value":"red"}`)
		fmt.Fprintln(out, cell)
		out.Close()
	}()
	f := &follower{progress: newProgress(io.Discard, time.Now())}
	err := f.follow(bufio.NewReader(in))
	if err == nil || !strings.Contains(err.Error(), "p.TestA") {
		t.Errorf("%v; want it to say whose cell is bad", err)
	}
	if len(f.table.Cells()) != 1 {
		t.Errorf("cells: %v; want the one that came later", f.table.Cells())
	}
}
