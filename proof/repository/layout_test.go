package repository

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The folders at the top are those of docs/design.md, and the files are those that a Go project has.
// What else lies there was forgotten.
func TestNothingLiesAtTheTopThatDoesNotBelongThere(t *testing.T) {
	belongs := []string{
		".ci", ".github", ".gitignore", ".golangci.yml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile",
		"README.md", "SECURITY.md", "backends", "bench", "cmd", "docs", "examples", "go.mod", "go.sum", "internal", "locker",
		"middleware", "proof", "strategies",
	}
	git := exec.Command("git", "ls-files")
	git.Dir = "../.."
	files, err := git.Output()
	if err != nil {
		t.Skip("not a git repository: ", err) // as in the module cache
	}
	for file := range strings.Lines(string(files)) {
		top, _, _ := strings.Cut(strings.TrimSpace(file), "/")
		if !slices.Contains(belongs, top) {
			t.Errorf("%s lies at the top; docs/design.md has no place for it", top)
		}
	}
}
