// Package ledger says which run has which tests: landing (make test), nightly (make nightly), or
// both.
//
// The table of parts is what the runs really do: the program proof/runs carries it out. The file
// ledger.txt names the tests of each package, and says which of them only the nightly run has, and
// which may skip, with the reason. A test of proof/repository compares the two with the tests of
// the tree, so that no test is lost; proof/runs compares the file with the skips of each run.
package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// File is the ledger, in the repository.
const File = "proof/ledger/ledger.txt"

// A Ledger is what the file says.
type Ledger struct {
	Reasons  []Reason
	Finds    []Find
	Packages []Entry
}

// A Find is what only the nightly run finds: by tests of a folder with these names, or, without a folder, by
// larger sizes of tests that both runs have.
type Find struct {
	Folder string
	Tests  *regexp.Regexp
	Text   string
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
	Nightly bool // only the nightly run has its tests
	Tests   []Test
}

// A Test is a test, a fuzz target or an example with an output.
type Test struct {
	Name    string
	Nightly bool     // only the nightly run has it
	Skips   []string // the names of the reasons for which it may skip, wholly or in subtests
}

var (
	reasonLine  = regexp.MustCompile(`^reason (\w+) "(.+)"$`)
	findLine    = regexp.MustCompile(`^finds(?: (\S+) (\S+))? "(.+)"$`)
	packageLine = regexp.MustCompile(`^(\S+)( nightly)?$`)
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
		} else if m := findLine.FindStringSubmatch(line); m != nil {
			tests, err := regexp.Compile("^(" + m[2] + ")$")
			if err != nil {
				return nil, wrong(err.Error())
			}
			l.Finds = append(l.Finds, Find{m[1], tests, m[3]})
		} else if m := packageLine.FindStringSubmatch(line); m != nil {
			if _, err := l.entry(m[1]); err == nil {
				return nil, wrong("the package is there twice")
			}
			l.Packages = append(l.Packages, Entry{Folder: m[1], Nightly: m[2] != ""})
		} else if m := testLine.FindStringSubmatch(line); m != nil && len(l.Packages) > 0 {
			t := Test{m[1], m[2] != "", strings.Fields(m[3])}
			for _, name := range t.Skips {
				if !slices.ContainsFunc(l.Reasons, func(r Reason) bool { return r.Name == name }) {
					return nil, wrong("no such reason")
				}
			}
			last := &l.Packages[len(l.Packages)-1]
			if _, found := last.test(t.Name); found {
				return nil, wrong("the test is there twice")
			}
			last.Tests = append(last.Tests, t)
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

func (e Entry) test(name string) (Test, bool) {
	for _, t := range e.Tests {
		if t.Name == name {
			return t, true
		}
	}
	return Test{Name: name}, false
}

// test returns what the ledger says of a test.
func (l *Ledger) test(folder, name string) Test {
	e, _ := l.entry(folder)
	t, _ := e.test(name)
	t.Nightly = t.Nightly || e.Nightly
	return t
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
	t := l.test(folder, test)
	switch {
	case reason == Full && run == Nightly:
		return false
	case reason == Full && t.Nightly:
		return true
	case reason == Full && whole: // nothing of the test runs in landing, and the ledger must say so
		return false
	}
	return slices.Contains(t.Skips, reason)
}

// OnlyNightly tells whether only the nightly run has a test.
func (l *Ledger) OnlyNightly(folder, test string) bool { return l.test(folder, test).Nightly }

// Only returns the tests that nightly alone runs, wholly or in subtests, and that f is about.
func (l *Ledger) Only(f Find) (tests []string) {
	for _, e := range l.Packages {
		for _, t := range e.Tests {
			if f.Folder == e.Folder && f.Tests.MatchString(t.Name) && e.only(t) {
				tests = append(tests, t.Name)
			}
		}
	}
	return tests
}

func (e Entry) only(t Test) bool { return e.Nightly || t.Nightly || slices.Contains(t.Skips, Full) }

// unlisted returns what is wrong in the list of what only the nightly run finds: tests that it is not about,
// and lines that are about none.
func (l *Ledger) unlisted() (wrong []string) {
	for _, e := range l.Packages {
		for _, t := range e.Tests {
			if e.only(t) && !slices.ContainsFunc(l.Finds, func(f Find) bool { return slices.Contains(l.Only(f), t.Name) && f.Folder == e.Folder }) {
				wrong = append(wrong, fmt.Sprintf("%s does not say what only nightly finds by %s.%s: add a line that begins with finds", File, e.Folder, t.Name))
			}
		}
	}
	for _, f := range l.Finds {
		if f.Folder != "" && len(l.Only(f)) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: only nightly finds %q, by no test of %s", File, f.Text, f.Folder))
		}
	}
	return wrong
}

// Updated returns the text of a ledger with the tests that there are. What it says of a test stays;
// packages and tests that are gone lose their lines.
func Updated(text string, packages []Package) (string, error) {
	l, err := Parse(text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if packageLine.MatchString(strings.TrimSuffix(line, "\n")) {
			break
		}
		out.WriteString(line)
	}
	nightly := func(is bool) string {
		if is {
			return " nightly"
		}
		return ""
	}
	for _, p := range packages {
		e, _ := l.entry(p.Folder)
		fmt.Fprintf(&out, "%s%s\n", p.Folder, nightly(e.Nightly))
		for _, name := range p.Tests {
			t, _ := e.test(name)
			fmt.Fprintf(&out, "  %s%s", name, nightly(t.Nightly))
			if len(t.Skips) > 0 {
				out.WriteString(" skips " + strings.Join(t.Skips, " "))
			}
			out.WriteString("\n")
		}
	}
	return out.String(), nil
}

// Check returns what is wrong: tests that the ledger and the tree do not share, and tests that no
// command of a run selects. A test of nightly alone needs none in landing.
func (l *Ledger) Check(packages []Package, runs map[Run][]Part) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, p := range packages {
		e, _ := l.entry(p.Folder)
		for _, name := range p.Tests {
			if _, known := e.test(name); !known {
				say("%s has no test %s.%s; `go run ./proof/runs update` adds it", File, p.Folder, name)
			}
			t := l.test(p.Folder, name)
			for run, parts := range runs {
				in, withoutRace := selected(parts, p, name)
				if !in && !(run == Landing && t.Nightly) {
					say("no part of the run %s has %s.%s", run, p.Folder, name)
				}
				if in && slices.Contains(t.Skips, Race) && !withoutRace {
					say("%s.%s skips under the race detector, and no part of the run %s has it without", p.Folder, name, run)
				}
			}
		}
	}
	for _, e := range l.Packages {
		i := slices.IndexFunc(packages, func(p Package) bool { return p.Folder == e.Folder })
		if i < 0 {
			say("%s has the package %s, which has no tests; if none is lost, `go run ./proof/runs update` removes it", File, e.Folder)
			continue
		}
		for _, t := range e.Tests {
			if !slices.Contains(packages[i].Tests, t.Name) {
				say("%s has the test %s.%s, which does not exist; if it is not lost, `go run ./proof/runs update` removes it", File, e.Folder, t.Name)
			}
		}
	}
	wrong = append(wrong, l.unlisted()...)
	slices.Sort(wrong)
	return wrong
}

func selected(parts []Part, p Package, test string) (in, withoutRace bool) {
	for _, part := range parts {
		for _, c := range part.Tests {
			if runs, _ := c.Selects(p, test); runs {
				in, withoutRace = true, withoutRace || !c.race()
			}
		}
	}
	return in, withoutRace
}
