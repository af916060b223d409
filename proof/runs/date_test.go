package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A clone has the times of any other clone with the same content.
func TestTheTimeOfAFileIsDecidedByItsContent(t *testing.T) {
	clone := func(text string) (file, folder time.Time) {
		dir := t.TempDir()
		name := filepath.Join(dir, "docs", "page.md")
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
			git := exec.Command("git", args...)
			git.Dir = dir
			if out, err := git.CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v: %s", args, err, out)
			}
		}
		if err := date(dir); err != nil {
			t.Fatal(err)
		}
		return modified(t, name), modified(t, filepath.Dir(name))
	}
	file, folder := clone("1 fault")
	again, folderAgain := clone("1 fault")
	if !again.Equal(file) || !folderAgain.Equal(folder) {
		t.Errorf("the times are %v and %v in one clone, and %v and %v in the other", file, folder, again, folderAgain)
	}
	if other, _ := clone("2 fault"); other.Equal(file) {
		t.Errorf("two contents of the same length have the time %v", other)
	}
}

func modified(t *testing.T, name string) time.Time {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}
