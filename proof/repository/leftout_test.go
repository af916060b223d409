package repository

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackagesThatNeedServersSayWhatTheyLeaveOut checks that a package whose tests need servers
// says at its end how many tests were left out: see redistest.Main. Otherwise it would pass
// silently on a machine without redis-server.
func TestPackagesThatNeedServersSayWhatTheyLeaveOut(t *testing.T) {
	need, tell := map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		for _, helper := range []string{"proof/redistest", "proof/beneath"} {
			need[dir] = need[dir] || strings.Contains(string(text), "\""+module+"/"+helper+"\"\n")
		}
		tell[dir] = tell[dir] || strings.Contains(string(text), "Main(m)")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for dir, needs := range need {
		if !needs {
			continue
		}
		packages++
		if !tell[dir] {
			t.Errorf("%s: TestMain does not call redistest.Main", dir)
		}
	}
	if packages < 15 {
		t.Errorf("only %d packages need servers; is the pattern of this test right?", packages)
	}
}
