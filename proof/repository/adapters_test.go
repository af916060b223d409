package repository

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheLinesOfAnAdapterAreCounted keeps the table of docs/adding-a-backend.md true: what an adapter
// for another client library of Redis costs.
func TestTheLinesOfAnAdapterAreCounted(t *testing.T) {
	const backends = "../../backends/"
	const suite = backends + "redisstore/driver/drivertest/"
	harness := regexp.MustCompile(`(?ms)^func harnessFor\(.*?^}$`).FindString(read(t, suite+"drivertest_test.go"))
	rows := []string{row("the smallest", codeLines(read(t, suite+"smallest_test.go")), codeLines(harness))}
	for _, name := range []string{"redigo", "goredis", "rueidis"} {
		dir := backends + name
		rows = append(rows, row("`"+name+"`", codeLines(sources(t, dir)), codeLines(read(t, filepath.Join(dir, "driver_test.go")))))
	}
	page := read(t, "../../docs/adding-a-backend.md")
	for _, want := range rows {
		if !strings.Contains(page, want) {
			t.Errorf("docs/adding-a-backend.md has no line: %s", want)
		}
	}
}

// TestTheLinesOfAStoreAreCounted keeps the other table of that page true: what a store costs.
func TestTheLinesOfAStoreAreCounted(t *testing.T) {
	const backends = "../../backends/"
	page := read(t, "../../docs/adding-a-backend.md")
	for name, tests := range map[string]string{"memory": "memory", "etcd": "etcd", "nats": "nats", "pgx": "pgx", "sqlstore": "sqlstore/dialects"} {
		if want := row("`"+name+"`", codeLines(sources(t, backends+name)), codeLines(testSources(t, backends+tests))); !strings.Contains(page, want) {
			t.Errorf("docs/adding-a-backend.md has no line: %s", want)
		}
	}
}

// testSources returns the tests of a package.
func testSources(t *testing.T, dir string) (all string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(dir, err)
	}
	for _, file := range files {
		all += read(t, file)
	}
	return all
}

func row(adapter string, code, tests int) string {
	return fmt.Sprintf("| %s | %d | %d |\n", adapter, code, tests)
}

// codeLines counts the lines of Go that are neither blank nor only a comment.
func codeLines(source string) (n int) {
	for line := range strings.Lines(source) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}
