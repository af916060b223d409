package pgxstore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/pgtest"
)

// TestTheFirstLockOfThePageWorksOnANewServer runs the program of docs/stores/postgresql.md as printed,
// except for the address.
func TestTheFirstLockOfThePageWorksOnANewServer(t *testing.T) {
	page, err := os.ReadFile("../../docs/stores/postgresql.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^# PostgreSQL\n\n(?:[^\n]+\n)*\n```go\n(package main\n.*?)^```$").FindSubmatchIndex(page)
	if block == nil {
		t.Fatal("the page does not begin with a whole program")
	}
	if lines := strings.Count(string(page[:block[1]]), "\n"); lines > 40 {
		t.Errorf("the first lock ends in line %d of the page; want 40 lines at most", lines)
	}
	const address = `"postgres://app@localhost:5432/app"`
	source := string(page[block[2]:block[3]])
	if strings.Count(source, address) != 1 {
		t.Fatalf("the program does not have the address %s once", address)
	}
	source = strings.Replace(strings.Replace(source, address, "os.Args[1]", 1), "import (\n", "import (\n\t\"os\"\n", 1)
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	server := pgtest.Start(t)
	out, err := exec.CommandContext(t.Context(), "go", "run", file, server.DSN()).CombinedOutput()
	if err != nil || string(out) != "charging invoice 42\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
