// Package ledger says which run has which tests: landing (make test), nightly (make nightly), or
// both.
//
// The table of parts is what the runs really do: the program proof/runs carries it out. The file
// ledger.txt says how many tests each package has, which of them only the nightly run has, and
// which may skip, with the reason. A test of proof/repository compares the two with the tests of
// the tree, so that no test is lost; proof/runs compares the file with the skips of each run.
package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// File is the ledger, in the repository.
const File = "proof/ledger/ledger.txt"

// A Ledger is what the file says.
type Ledger struct {
	Reasons  []Reason
	Packages []Entry
}

// A Reason to skip a test has a name, and the text with which it begins.
type Reason struct{ Name, Text string }

// The reasons that mean something to this package.
const (
	// Full is the reason of proof/full. No test of the nightly run skips with it.
	Full = "full"
	// Race is the reason of proof/race. The same run has the test once more, without the race
	// detector.
	Race = "race"
)

// An Entry is about a package.
type Entry struct {
	Folder  string
	Count   int
	Nightly bool // only the nightly run has its tests
	Tests   []Exception
}

// An Exception is a test that only the nightly run has, or that may skip, wholly or in subtests.
type Exception struct {
	Name    string
	Nightly bool
	Skips   []string // names of reasons
}

var (
	reasonLine  = regexp.MustCompile(`^reason (\w+) "(.+)"$`)
	packageLine = regexp.MustCompile(`^(\S+) (\d+)( nightly)?$`)
	testLine    = regexp.MustCompile(`^  (\w+)( nightly)?(?: skips ([\w ]+))?$`)
)

// Read reads the ledger of the repository at root.
func Read(root string) (*Ledger, error) {
	text, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		return nil, err
	}
	return Parse(string(text))
}

// Parse reads a ledger.
func Parse(text string) (*Ledger, error) {
	l := new(Ledger)
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		wrong := func(what string) error { return fmt.Errorf("%s:%d: %s: %s", File, n+1, what, line) }
		if m := reasonLine.FindStringSubmatch(line); m != nil {
			l.Reasons = append(l.Reasons, Reason{m[1], m[2]})
		} else if m := packageLine.FindStringSubmatch(line); m != nil {
			if _, err := l.entry(m[1]); err == nil {
				return nil, wrong("the package is there twice")
			}
			count, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, wrong(err.Error())
			}
			l.Packages = append(l.Packages, Entry{Folder: m[1], Count: count, Nightly: m[3] != ""})
		} else if m := testLine.FindStringSubmatch(line); m != nil && len(l.Packages) > 0 && m[2]+m[3] != "" {
			x := Exception{m[1], m[2] != "", strings.Fields(m[3])}
			for _, name := range x.Skips {
				if !slices.ContainsFunc(l.Reasons, func(r Reason) bool { return r.Name == name }) {
					return nil, wrong("no such reason")
				}
			}
			last := &l.Packages[len(l.Packages)-1]
			last.Tests = append(last.Tests, x)
		} else {
			return nil, wrong("this is no line of a ledger")
		}
	}
	return l, nil
}

func (l *Ledger) entry(folder string) (Entry, error) {
	i := slices.IndexFunc(l.Packages, func(e Entry) bool { return e.Folder == folder })
	if i < 0 {
		return Entry{}, fmt.Errorf("%s does not know the package %s", File, folder)
	}
	return l.Packages[i], nil
}

// exception returns what the ledger says of a test.
func (l *Ledger) exception(folder, test string) Exception {
	e, _ := l.entry(folder)
	x := Exception{Name: test}
	if i := slices.IndexFunc(e.Tests, func(x Exception) bool { return x.Name == test }); i >= 0 {
		x = e.Tests[i]
	}
	x.Nightly = x.Nightly || e.Nightly
	return x
}

// Reason returns the name of the reason of a test that has skipped: its name, if the reason is the
// name of the subtest, or else by what it has printed.
func (l *Ledger) Reason(name, printed string) (reason string, known bool) {
	for _, r := range l.Reasons {
		if strings.HasPrefix(printed, r.Text) || strings.HasSuffix(name, "/"+strings.ReplaceAll(r.Text, " ", "_")) {
			return r.Name, true
		}
	}
	return "", false
}

// Expects tells whether a test may skip in a run for this reason, wholly or in a subtest.
func (l *Ledger) Expects(run Run, folder, test, reason string, whole bool) bool {
	x := l.exception(folder, test)
	switch {
	case reason == Full && run == Nightly:
		return false
	case reason == Full && x.Nightly:
		return true
	case reason == Full && whole: // nothing of the test runs in landing, and the ledger must say so
		return false
	}
	return slices.Contains(x.Skips, reason)
}

// OnlyNightly tells whether only the nightly run has a test.
func (l *Ledger) OnlyNightly(folder, test string) bool { return l.exception(folder, test).Nightly }

// Counted returns the text of a ledger with the numbers of the tests that there are: packages that
// are new get a line, and those that are gone lose theirs.
func Counted(text string, packages []Package) (string, error) {
	l, err := Parse(text)
	if err != nil {
		return "", err
	}
	var head []string
	for line := range strings.Lines(text) {
		if packageLine.MatchString(strings.TrimSuffix(line, "\n")) {
			break
		}
		head = append(head, line)
	}
	var out strings.Builder
	out.WriteString(strings.Join(head, ""))
	for _, p := range packages {
		e, _ := l.entry(p.Folder)
		fmt.Fprintf(&out, "%s %d", p.Folder, len(p.Tests))
		if e.Nightly {
			out.WriteString(" nightly")
		}
		out.WriteString("\n")
		for _, x := range e.Tests {
			out.WriteString("  " + x.Name)
			if x.Nightly {
				out.WriteString(" nightly")
			}
			if len(x.Skips) > 0 {
				out.WriteString(" skips " + strings.Join(x.Skips, " "))
			}
			out.WriteString("\n")
		}
	}
	return out.String(), nil
}

// Check returns what is wrong: packages and tests that the ledger and the tree do not share, and
// tests that no command of a run selects. A test of nightly alone needs none in landing.
func (l *Ledger) Check(packages []Package, runs map[Run][]Part) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, p := range packages {
		e, err := l.entry(p.Folder)
		switch {
		case err != nil:
			say("%v; `go run ./proof/runs count` adds it", err)
		case e.Count != len(p.Tests):
			say("%s has %d tests, and %s says %d; if none is lost, `go run ./proof/runs count` writes it", p.Folder, len(p.Tests), File, e.Count)
		}
		for _, test := range p.Tests {
			x := l.exception(p.Folder, test)
			for run, parts := range runs {
				in, withoutRace := selected(parts, p, test)
				if !in && !(run == Landing && x.Nightly) {
					say("no part of the run %s has %s.%s", run, p.Folder, test)
				}
				if in && slices.Contains(x.Skips, Race) && !withoutRace {
					say("%s.%s skips under the race detector, and no part of the run %s has it without", p.Folder, test, run)
				}
			}
		}
	}
	for _, e := range l.Packages {
		i := slices.IndexFunc(packages, func(p Package) bool { return p.Folder == e.Folder })
		if i < 0 {
			say("%s has the package %s, which has no tests", File, e.Folder)
			continue
		}
		for _, x := range e.Tests {
			if !slices.Contains(packages[i].Tests, x.Name) {
				say("%s has the test %s.%s, which does not exist", File, e.Folder, x.Name)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func selected(parts []Part, p Package, test string) (in, withoutRace bool) {
	for _, part := range parts {
		for _, c := range part.Tests {
			if c.selects(p, test) {
				in, withoutRace = true, withoutRace || !c.race()
			}
		}
	}
	return in, withoutRace
}
