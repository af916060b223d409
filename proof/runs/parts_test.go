package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/ledger"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

const book = `reason full "make nightly runs it"
reason race "run it without -race"
reason promised "sentences that do not run"

a
  TestLong nightly
  TestRaced skips race promised
  TestParts skips full
`

// skipped is what go test says of a test of package a that skips.
func skipped(name, why string) []string {
	return []string{
		`{"Action":"run","Package":"` + module + `/a","Test":"` + name + `"}`,
		`{"Action":"output","Package":"` + module + `/a","Test":"` + name + `","Output":"    full_test.go:7: ` + why + `\n"}`,
		`{"Action":"output","Package":"` + module + `/a","Test":"` + name + `","Output":"--- SKIP: ` + name + ` (0.00s)\n"}`,
		`{"Action":"skip","Package":"` + module + `/a","Test":"` + name + `"}`,
	}
}

func passed(name string) []string {
	return []string{`{"Action":"pass","Package":"` + module + `/a","Test":"` + name + `"}`}
}

func TestASkipThatTheLedgerDoesNotExpectFailsTheRun(t *testing.T) {
	l, err := ledger.Parse(book)
	if err != nil {
		t.Fatal(err)
	}
	const full, race = "make nightly runs it", "run it without -race: make test does"
	for _, c := range []struct {
		says  string
		run   ledger.Run
		lines []string
		wrong string // empty: nothing is
	}{
		{"a test of nightly", ledger.Landing, skipped("TestLong", full), ""},
		{"a test of nightly runs in landing", ledger.Landing, passed("TestLong"), "nightly alone"},
		{"a test of nightly runs there", ledger.Nightly, passed("TestLong"), ""},
		{"a test of nightly skips there", ledger.Nightly, skipped("TestLong", full), "a.TestLong has skipped"},
		{"a part of a test", ledger.Landing, skipped("TestParts/large", full), ""},
		{"a part of a test skips in nightly", ledger.Nightly, skipped("TestParts/large", full), "a.TestParts/large has skipped"},
		{"all of a test that only parts may", ledger.Landing, skipped("TestParts", full), "a.TestParts has skipped"},
		{"under the race detector", ledger.Nightly, skipped("TestRaced", race), ""},
		{"for another reason", ledger.Landing, skipped("TestRaced", full), "a.TestRaced has skipped"},
		{"for a reason that nobody knows", ledger.Landing, skipped("TestRaced", "LEFT OUT: redis-server is not installed"), "redis-server is not installed"},
		{"without a reason", ledger.Landing, skipped("TestRaced", ""), "a.TestRaced has skipped"},
		{"a subtest that lists what is not promised", ledger.Landing, skipped("TestRaced/plain/sentences_that_do_not_run", `it renews: can't set faults`), ""},
		{"another test", ledger.Landing, skipped("TestOther", full), "a.TestOther has skipped"},
		{"another test passes", ledger.Landing, passed("TestOther"), ""},
	} {
		f, _, err := follows(c.lines...)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		skipped := skips{book: l}
		skipped.add(c.run, f.ended)
		err = skipped.print(&out, "part")
		if c.run == ledger.Landing {
			err = errors.Join(err, onlyNightly(l, f.ended))
		}
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v; want %q", c.says, err, c.wrong)
		}
	}
}

// TestOneRunComparesItsSkips does it in a module of its own, whose one test skips.
func TestOneRunComparesItsSkips(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module " + module + "\n\ngo 1.26\n",
		"a/a_test.go":  "package a\n\nimport \"testing\"\n\nfunc TestIt(t *testing.T) { t.Skip(\"LEFT OUT: a server\") }\n",
		".ci/versions": "#!/bin/sh\necho none\n",
		ledger.File:    "reason server \"LEFT OUT: \"\na\n  TestIt\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	args := []string{"-vet=off", "./..."}
	if err := once(t.Context(), io.Discard, args); err == nil || !strings.Contains(err.Error(), "a.TestIt has skipped") {
		t.Errorf("%v; want that a.TestIt has skipped", err)
	}
	if err := os.WriteFile(ledger.File, []byte("reason server \"LEFT OUT: \"\na\n  TestIt skips server\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := once(t.Context(), io.Discard, args); err != nil {
		t.Errorf("with a skip that is expected: %v", err)
	}
}

func TestATestThatIsSelectedAndHasNotRunFailsTheRun(t *testing.T) {
	a := ledger.Package{Folder: "a", Module: ".", Tests: []string{"TestElsewhere", "TestLong", "TestParts"}, Elsewhere: []string{"TestElsewhere"}}
	for says, c := range map[string]struct {
		tests ledger.Tests
		lines []string
		wrong string // empty: nothing is
	}{
		"all have run":            {ledger.Tests{}, slices.Concat(passed("TestLong"), passed("TestParts")), ""},
		"one skips":               {ledger.Tests{}, slices.Concat(skipped("TestLong", "why"), passed("TestParts")), ""},
		"one has not run":         {ledger.Tests{}, passed("TestParts"), "a.TestLong has not run"},
		"it is not selected":      {ledger.Tests{Run: "Parts"}, passed("TestParts"), ""},
		"it is left out":          {ledger.Tests{Skip: "Long"}, passed("TestParts"), ""},
		"a subtest is selected":   {ledger.Tests{Run: "Parts/small"}, slices.Concat(passed("TestParts/small"), passed("TestParts")), ""},
		"no subtest has the name": {ledger.Tests{Run: "Parts/small"}, passed("TestParts"), "a.TestParts has no subtest that -run Parts/small selects"},
		"a package has not run":   {ledger.Tests{}, nil, "a.TestLong has not run"},
		"of another module":       {ledger.Tests{Module: "b"}, nil, ""},
	} {
		f, _, err := follows(c.lines...)
		if err != nil {
			t.Fatal(err)
		}
		err = missing(c.tests, []ledger.Package{a}, f.ended)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v; want %q", says, err, c.wrong)
		}
	}
}

func TestSkipsAreCountedAndNamed(t *testing.T) {
	l, err := ledger.Parse(book)
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := follows(slices.Concat(skipped("TestParts/large", "make nightly runs it"), skipped("TestParts/larger", "make nightly runs it"), skipped("TestLong", "make nightly runs it"))...)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	skipped := skips{book: l}
	skipped.add(ledger.Landing, f.ended)
	if err := skipped.print(&out, "root"); err != nil {
		t.Error(err)
	}
	if want := "root: 3 skipped (full): a.TestLong 1, a.TestParts 2\nroot: 3 tests and subtests skipped, 0 not expected\n"; out.String() != want {
		t.Errorf("printed %q; want %q", out.String(), want)
	}
}

func TestAReportOfTheRaceDetectorIsPrintedWithWhicheverTestHasIt(t *testing.T) {
	var out bytes.Buffer
	f := &follower{progress: newProgress(&out, time.Now()), lines: true}
	err := f.follow(bufio.NewReader(strings.NewReader(`{"Action":"output","Package":"p","Test":"TestA/b","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"Read at 0x00c00003a308 by goroutine 7:\n"}
{"Action":"pass","Package":"p","Test":"TestA/b"}
`)))
	if want := "WARNING: DATA RACE\nRead at 0x00c00003a308 by goroutine 7:\n"; err != nil || !strings.Contains(out.String(), want) {
		t.Errorf("%v, %q; want %q", err, out.String(), want)
	}
}

// In landing, what go test says of each package is printed as it is without -json.
func TestALineForEachPackageIsShown(t *testing.T) {
	var out bytes.Buffer
	f := &follower{progress: newProgress(&out, time.Now()), lines: true}
	err := f.follow(bufio.NewReader(strings.NewReader(`{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t(cached)\n"}
{"Action":"pass","Package":"p"}
`)))
	if err != nil || out.String() != "ok  \tp\t(cached)\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestTheCPUTimeOfTestsIsCounted(t *testing.T) {
	f := &follower{progress: newProgress(io.Discard, time.Now())}
	if err := test(t.Context(), []string{"-vet=off", "-run", "^$", "../race"}, inFull, f); err != nil {
		t.Fatal(err)
	}
	if f.used <= 0 || f.used > time.Minute {
		t.Errorf("it used %v of CPU", f.used)
	}
}

// TestThePartsNameTargetsOfTheMakefile: make -n reads the Makefile, and runs nothing but the
// $(shell).
func TestThePartsNameTargetsOfTheMakefile(t *testing.T) {
	// The go command notes that this test reads the file, and takes no cached result of another
	// one.
	if _, err := os.ReadFile("../../Makefile"); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("make"); err != nil {
		redistest.Missing(t, "make is not installed")
	}
	makes := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("make", append([]string{"-n", "--no-print-directory", "-C", "../.."}, args...)...)
		printed, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("make %v: %v\n%s", args, err, printed)
		}
		return string(printed)
	}
	for _, p := range ledger.Runs[ledger.Nightly] {
		if printed := makes("nightly", "PART="+p.Name, "COUNT=3"); !strings.Contains(printed, "go run ./proof/runs nightly -count 3 "+p.Name+"\n") {
			t.Errorf("make nightly PART=%s runs\n%s", p.Name, printed)
		}
		for _, target := range p.Make {
			makes(strings.Fields(target)...)
		}
	}
	// With make -n, the recursive make prints the parts of make test.
	printed := makes("test")
	for _, p := range ledger.Runs[ledger.Landing] {
		if !strings.Contains(printed, "go run ./proof/runs landing "+p.Name+"\n") {
			t.Errorf("make test does not run the part %s:\n%s", p.Name, printed)
		}
	}
	if !strings.Contains(printed, "go run ./proof/servers -small") {
		t.Errorf("make test does not run the tests on the newest servers:\n%s", printed)
	}
	if n := strings.Count(printed, "go run ./proof/runs landing "); n != len(ledger.Runs[ledger.Landing]) {
		t.Errorf("make test runs %d parts, and the table has %d", n, len(ledger.Runs[ledger.Landing]))
	}
}
