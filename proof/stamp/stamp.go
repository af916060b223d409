// Package stamp writes under the figures of a page at which commit they were made, and tells what
// has changed since.
package stamp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A Stamp is what a page says of some of its figures.
type Stamp struct {
	Date   string
	Commit string
	// Changed says that the tree had changes which were not committed, so the commit is not all of it.
	Changed bool
}

// unknown is the commit in a tree without git.
const unknown = "0000000"

var stamped = regexp.MustCompile("Made on (\\d{4}-\\d\\d-\\d\\d) at commit `([0-9a-f]{7,40})`( with changes)?")

// Find returns the stamps of a page.
func Find(page string) (all []Stamp) {
	for _, m := range stamped.FindAllStringSubmatch(page, -1) {
		all = append(all, Stamp{Date: m[1], Commit: m[2], Changed: m[3] != ""})
	}
	return all
}

// Now returns the stamp of the tree at dir, whose packages are in folders.
func Now(dir string, folders ...string) Stamp {
	s := Stamp{Date: time.Now().UTC().Format(time.DateOnly), Commit: unknown}
	head, err := git(dir, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return s
	}
	changes, err := git(dir, append([]string{"status", "--porcelain", "--"}, top(folders)...)...)
	s.Commit, s.Changed = strings.TrimSpace(head), err != nil || changes != ""
	return s
}

// String is the text that [Find] finds.
func (s Stamp) String() string {
	text := fmt.Sprintf("Made on %s at commit `%s`", s.Date, s.Commit)
	if s.Changed {
		text += " with changes"
	}
	return text
}

// Measured are the folders whose packages the matrix and the figures are about.
var Measured = []string{"locker", "strategies", "backends", "internal"}

// Pages are the pages with such figures.
var Pages = []string{"docs/matrix.md", "docs/performance.md"}

// ErrNoHistory says that nobody can tell here: the tree is no clone, or the clone is too shallow.
var ErrNoHistory = errors.New("the history has no such commit")

// Since returns the files of folders that have changed since the commit of s, committed or not: Go
// files of the packages, and the versions of what they require. Tests and suites are left out.
func (s Stamp) Since(dir string, folders ...string) (files []string, err error) {
	if _, err := git(dir, "cat-file", "-e", s.Commit+"^{commit}"); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoHistory, s.Commit)
	}
	names, err := git(dir, append([]string{"diff", "--name-only", "--no-renames", s.Commit, "--", ":/go.mod"}, top(folders)...)...)
	if err != nil {
		return nil, err
	}
	for name := range strings.Lines(names) {
		if name = strings.TrimSpace(name); counts(name) {
			files = append(files, name)
		}
	}
	return files, nil
}

// top returns the folders of the repository as git names them from any of its folders.
func top(folders []string) (all []string) {
	for _, folder := range folders {
		all = append(all, ":/"+folder)
	}
	return all
}

// counts tells whether a change of a file may change a figure.
func counts(name string) bool {
	if filepath.Base(name) == "go.mod" {
		return true
	}
	suite := slices.ContainsFunc(strings.Split(filepath.ToSlash(filepath.Dir(name)), "/"), func(folder string) bool {
		return strings.HasSuffix(folder, "test")
	})
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !suite
}

// Report tells in one line for each stamp of a page what has changed since, and whether anything has.
// A page without a stamp is an error.
func Report(dir, page string, folders ...string) (lines []string, stale bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, page))
	if err != nil {
		return nil, false, err
	}
	all := Find(string(text))
	if len(all) == 0 {
		return nil, false, fmt.Errorf("%s does not say at which commit it was made", page)
	}
	for _, s := range all {
		files, err := s.Since(dir, folders...)
		switch {
		case errors.Is(err, ErrNoHistory):
			lines, stale = append(lines, fmt.Sprintf("%s: NOT KNOWN what has changed since %s (%s): %v", page, s.Commit, s.Date, err)), true
		case err != nil:
			return nil, false, err
		case s.Changed || len(files) > 0:
			lines = append(lines, fmt.Sprintf("%s: OLDER THAN THE CODE: %d measured files have changed since %s (%s), such as %s",
				page, len(files), s.Commit, s.Date, strings.Join(files[:min(3, len(files))], ", ")))
			stale = true
		default:
			lines = append(lines, fmt.Sprintf("%s: nothing measured has changed since %s (%s)", page, s.Commit, s.Date))
		}
	}
	return lines, stale, nil
}

// libraries are the client libraries and embedded servers whose versions may change a figure.
var libraries = regexp.MustCompile(`(?m)^\s*(?:require )?(\S*(?:go-redis/v9|redigo|rueidis|pgx/v5|go-sql-driver/mysql|modernc\.org/sqlite|etcd/(?:client|server)/v3|nats-server/v2|nats\.go)) (v\S+)`)

// Versions returns the versions of the libraries that the modules of the tree at dir require.
func Versions(dir string) string {
	var all []string
	for _, pattern := range []string{"go.mod", "backends/*/go.mod", "backends/*/*/go.mod"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are right
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			for _, m := range libraries.FindAllStringSubmatch(string(text), -1) {
				all = append(all, m[1][strings.Index(m[1], "/")+1:]+" "+m[2])
			}
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// git runs git in a folder. In a hook, git names the repository of the hook in the environment.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_WORK_TREE=") || strings.HasPrefix(v, "GIT_INDEX_FILE=")
	})
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
