package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/stamp"
)

func TestATableHasTheServersThatRanAndNoOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	suites := []suite{{name: "adapters"}}
	rows := []row{{"Redis", "8.0.2", []string{"passed"}}, {"Valkey", "9.1.2", []string{"passed"}}}
	if err := publish(file, made("make servers"), list(rows)); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if !strings.HasPrefix(text, "before\n"+begin) || !strings.HasSuffix(text, end+"after\n") || strings.Contains(text, "old") ||
		len(stamp.Find(text)) != 1 || !strings.Contains(text, "\nPassed on: Redis 8.0.2, Valkey 9.1.2.\n") {
		t.Errorf("the page is\n%s", text)
	}
	for r, listed := range map[[2]string]bool{
		{"Redis", "8.0.2"}: true, {"Redis", "8.1.0"}: false, {"Valkey", "8.0.2"}: false, {"Valkey", "9.1.2"}: true, {"Valkey", "9.1.3"}: true, {"Valkey", "9.10.0"}: false, {"Redis", "9.1.2"}: false,
	} {
		if err := lacks(file, []row{{r[0], r[1], nil}}); (err == nil) != listed {
			t.Errorf("%v: %v", r, err)
		}
	}
	if err := publish(filepath.Join("..", "..", "LICENSE"), "Made.\n", ""); err == nil {
		t.Error("a file without marks is no error")
	}
	whole := filepath.Join(t.TempDir(), "new", "servers.md")
	if err := keep(whole, made("make servers"), table(suites, rows)); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(whole)
	if err != nil || len(stamp.Find(string(kept))) != 1 || !strings.Contains(string(kept), "\nWith "+runtime.Version()) ||
		!strings.HasSuffix(string(kept), "| server | version | adapters |\n|---|---|---|\n| Redis | 8.0.2 | passed |\n| Valkey | 9.1.2 | passed |\n") {
		t.Errorf("%v, and the artefact is\n%s", err, kept)
	}
}

func TestASuiteWithoutTestsHasFailed(t *testing.T) {
	t.Chdir("../..")
	err := suite{runs: []run{{".", "./proof/servers -run ^TestOfNothing$", false}}}.test()
	if err == nil || !strings.Contains(err.Error(), "no such tests") {
		t.Errorf("%v; want that a package has no such tests", err)
	}
}

func TestAFolderWithoutAServerIsAnError(t *testing.T) {
	if err := serve([]string{t.TempDir()}, nil, "", "", ""); err == nil {
		t.Error("the server in PATH took the place of one that is missing")
	}
}
