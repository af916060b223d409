package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestATableHasTheServersThatRanAndNoOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	suites := []suite{{name: "adapters"}}
	if err := publish(file, "make servers", table(suites, []row{{"Valkey", "9.1.2", []string{"passed"}}})); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if !strings.HasPrefix(text, "before\n"+begin) || !strings.HasSuffix(text, end+"after\n") || strings.Contains(text, "old") ||
		!strings.Contains(text, "| server | version | adapters |\n|---|---|---|\n| Valkey | 9.1.2 | passed |\n") {
		t.Errorf("the page is\n%s", text)
	}
	for r, listed := range map[[2]string]bool{
		{"Valkey", "9.1.2"}: true, {"Valkey", "9.1.3"}: true, {"Valkey", "9.10.0"}: false, {"Redis", "9.1.2"}: false,
	} {
		if err := lacks(file, []row{{r[0], r[1], nil}}); (err == nil) != listed {
			t.Errorf("%v: %v", r, err)
		}
	}
	if err := publish(filepath.Join("..", "..", "LICENSE"), "make servers", ""); err == nil {
		t.Error("a file without marks is no error")
	}
}

func TestASuiteWithoutTestsHasFailed(t *testing.T) {
	if err := (suite{runs: []run{{".", ". -run ^TestOfNothing$"}}}).test(); err == nil {
		t.Error("a suite without tests has passed")
	}
}

func TestAFolderWithoutAServerIsAnError(t *testing.T) {
	if err := serve([]string{t.TempDir()}, nil, "", ""); err == nil {
		t.Error("the server in PATH took the place of one that is missing")
	}
}
