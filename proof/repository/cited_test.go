package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	declaration = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	citation    = regexp.MustCompile(`(?:([a-z][\w/]*)\.)?\b(Test[A-Z]\w*)`)
	sentence    = regexp.MustCompile(`(lockertest|backendtest|drivertest) "([^"]+)"`)
)

// TestCitedTestsExist looks for every test that the documentation names: TestName in any package,
// path/of/package.TestName in that package. It also looks for the sentences of a contract, which
// the documentation quotes as lockertest "…".
func TestCitedTestsExist(t *testing.T) {
	tests := declaredTests(t)
	contracts := map[string]string{
		"lockertest": sources(t, "../../locker/lockertest"), "backendtest": sources(t, "../../backends/backendtest"),
		"drivertest": sources(t, "../../proof/drivertest"),
	}
	cited, quoted := 0, 0
	for _, file := range documents(t) {
		// examples declare tests
		outside := regexp.MustCompile("(?ms)^```go\n.*?^```$").ReplaceAllString(read(t, file), "")
		for _, c := range citation.FindAllStringSubmatch(outside, -1) {
			if c[2] == "TestOnBorrow" {
				continue // a function of package redigo
			}
			cited++
			if in := tests[c[2]]; len(in) == 0 || c[1] != "" && !slices.Contains(in, c[1]) {
				t.Errorf("%s cites %s; tests of that name are in %q", file, c[0], in)
			}
		}
		for _, c := range sentence.FindAllStringSubmatch(strings.Join(strings.Fields(outside), " "), -1) {
			quoted++
			if !strings.Contains(contracts[c[1]], `{"`+c[2]+`", `) {
				t.Errorf("%s quotes %s, which is not a sentence of %s", file, c[2], c[1])
			}
		}
	}
	if cited < 10 || quoted < 5 {
		t.Errorf("only %d tests and %d sentences; is the pattern of this test right?", cited, quoted)
	}
}

// documents are the pages for users and contributors: those under docs and proof, and those at the top.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{"../../README.md", "../../CONTRIBUTING.md", "../../SECURITY.md"}
	for _, folder := range []string{"../../docs", "../../proof"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.Name() == "testdata":
				return filepath.SkipDir
			case strings.HasSuffix(path, ".md") && filepath.Base(path) != "head.md": // which is the top of an artefact
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestMigratingRaisesNoLongestTTL: after a restart of Redis no lock is granted for the longest TTL
// (redisstore.WithMaxTTL). What the old code has does not matter: a Client renews its locks.
func TestMigratingRaisesNoLongestTTL(t *testing.T) {
	for i, line := range strings.Split(read(t, "../../docs/migrating.md"), "\n") {
		for _, option := range []string{"WithMaxTTL", "WithQuarantine", "WithoutQuarantine", "(safety.md#the-longest-ttl)"} {
			if strings.Contains(line, option) {
				t.Errorf("docs/migrating.md:%d names %s: %s", i+1, option, line)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// declaredTests returns the packages of each test, by their paths in the repository.
func declaredTests(t *testing.T) map[string][]string {
	t.Helper()
	const root = "../.."
	tests := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, d := range declaration.FindAllStringSubmatch(string(text), -1) {
			tests[d[1]] = append(tests[d[1]], filepath.ToSlash(dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// sources returns the files of a package, without tests.
func sources(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}
