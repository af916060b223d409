package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const source = `package x

func run() int {
	return 1
}

func (l *list[T]) idle() int {
	return 2
}

var table = []func() int{
	func() int { return 3 },
}
`

// check runs the program over locker/x.go. Every other package that must be tested has a copy of
// it.
func check(t *testing.T, runs [3]int, list string) (printed string, err error) {
	t.Helper()
	root := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	profile, others := "mode: set\n", "" // nothing was run there
	for i, where := range []string{"3.16,5.2 20", "7.30,9.2 1", "12.13,12.25 1"} {
		profile += fmt.Sprintf("%slocker/x.go:%s %d\n", module, where, runs[i])
		others += fmt.Sprintf("%slocker/x.go:%s 0\n", module, where)
	}
	for _, more := range []string{"locker", "strategies/single", "backends/redisstore"} {
		file(more+"/x.go", source)
		profile += module + more + "/x.go:3.16,5.2 20 1\n" // another test ran it
		profile += module + more + "/x.go:8.1,8.2 0 0\n"   // without statements
	}
	printed, err = run(root, file("coverage.out", profile+others), file("list.md", list))
	return regexp.MustCompile(" +").ReplaceAllString(printed, " "), err
}

const bothListed = "# Other\n\n| `locker.other` | not here |\n\n## What no test runs\n\nWords.\n\n| where | why |\n|---|---|\n" +
	"| `locker.list.idle`, `locker.table` | since |\n\n## Next\n\n| `locker.next` | not here either |\n"

func TestWhatAnyTestRunsIsRun(t *testing.T) {
	printed, err := check(t, [3]int{0, 1, 1}, bothListed)
	if err != nil {
		t.Errorf("error %v", err)
	}
	for _, line := range []string{"locker 22 100.0 %", "locker as a whole 22 100.0 %"} {
		if !strings.Contains(printed, line) {
			t.Errorf("no line %q in\n%s", line, printed)
		}
	}
}

func TestWhatNoTestRunsIsTold(t *testing.T) {
	printed, err := check(t, [3]int{1, 0, 0}, bothListed)
	if err != nil {
		t.Errorf("error %v", err)
	}
	for _, line := range []string{"locker/x.go:7 in locker.list.idle\n", "locker/x.go:12 in locker.table\n", "locker 22 90.9 %"} {
		if !strings.Contains(printed, line) {
			t.Errorf("no line %q in\n%s", line, printed)
		}
	}
}

func TestWhatIsWrong(t *testing.T) {
	section := func(row string) string { return "## What no test runs\n\n| where | why |\n|---|---|\n" + row }
	for name, c := range map[string]struct {
		runs [3]int
		list string
		want string // in the error; empty: no error
	}{
		"a package that is listed":    {[3]int{1, 0, 0}, section("| `locker` | since |\n"), ""},
		"not listed":                  {[3]int{1, 0, 1}, section("| `locker.table` | since |\n"), "locker/x.go:7 is not run, and"},
		"listed without a reason":     {[3]int{1, 0, 1}, section("| `locker.list.idle` | |\n"), "does not list locker.list.idle"},
		"listed, and gone since":      {[3]int{1, 1, 1}, section("| `locker.gone` | since |\n"), "lists locker.gone, which there is not"},
		"no section":                  {[3]int{1, 1, 1}, "# Words\n", `no section "What no test runs"`},
		"too little of a part is run": {[3]int{}, section("| `locker` | since |\n"), "want at least 90"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "too little of a part is run" {
				defer func(p []string) { parts = p }(parts)
				parts = append(parts, "middleware") // it has no blocks
			}
			_, err := check(t, c.runs, c.list)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want %q", err, c.want)
			}
		})
	}
}

func TestTheListOfThisRepositoryCanBeRead(t *testing.T) {
	if reasons, err := listed("unrun.md"); err != nil || reasons["locker.hold.act"] == "" {
		t.Errorf("listed = %v, %v", reasons, err)
	}
}
