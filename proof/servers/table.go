package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lockstep-go/lockstep/proof/stamp"
)

// The list of servers is between these marks.
const (
	begin = "<!-- servers: written by make servers -->\n"
	end   = "<!-- end of servers -->\n"
)

// A row is a server and what came of each suite.
type row struct {
	server, version string
	verdicts        []string
}

func table(suites []suite, rows []row) string {
	var s strings.Builder
	line := func(cells ...string) { fmt.Fprintf(&s, "| %s |\n", strings.Join(cells, " | ")) }
	names := []string{"server", "version"}
	for _, suite := range suites {
		names = append(names, suite.name)
	}
	line(names...)
	s.WriteString(strings.Repeat("|---", len(names)) + "|\n")
	for _, r := range rows {
		line(append([]string{r.server, r.version}, r.verdicts...)...)
	}
	return s.String()
}

// cut returns what is before, between and after the marks of a file.
func cut(file string) (before, between, after string, err error) {
	page, err := os.ReadFile(file)
	if err != nil {
		return "", "", "", err
	}
	before, rest, _ := strings.Cut(string(page), begin)
	between, after, closed := strings.Cut(rest, end)
	if !closed { // it is false as well if the first mark is missing
		return "", "", "", fmt.Errorf("%s has no marks for the servers", file)
	}
	return before, between, after, nil
}

// list names the servers in a sentence.
func list(rows []row) string {
	var names []string
	for _, r := range rows {
		names = append(names, r.server+" "+r.version)
	}
	return "Passed on: " + strings.Join(names, ", ") + ".\n"
}

// made is the line that says when and by which command the suites have passed.
func made(by string) string {
	return fmt.Sprintf("%v, by `%s`.\n", stamp.Now(".", stamp.Measured...), by)
}

// keep writes the table into a file, with the versions of the client libraries.
func keep(file, made, table string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	text := "# Which suites have passed on which server\n\n" + made + "\nWith " + runtime.Version() + ", " + stamp.Versions(".") + ".\n\n" + table
	return os.WriteFile(file, []byte(text), 0o644)
}

// publish replaces what is between the marks by the list.
func publish(file, made, list string) error {
	before, _, after, err := cut(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(before+begin+made+list+end+after), 0o644)
}

// lacks returns an error if a row has no counterpart in the list of the file. The last number of a
// version is left aside: Debian mends a server without notice.
func lacks(file string, rows []row) error {
	_, between, _, err := cut(file)
	if err != nil {
		return err
	}
	for _, r := range rows {
		series := r.version[:strings.LastIndex(r.version, ".")+1]
		if !strings.Contains(between, fmt.Sprintf(" %s %s", r.server, series)) {
			return fmt.Errorf("the list in %s has no %s %sx: run make servers, and remove what Debian no longer has", file, r.server, series)
		}
	}
	return nil
}
