package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// The table is between these marks.
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

// publish replaces what is between the marks by the table, and names the command that made it.
func publish(file, by, table string) error {
	before, _, after, err := cut(file)
	if err != nil {
		return err
	}
	made := "Made on " + time.Now().UTC().Format(time.DateOnly) + " by `" + by + "`.\n\n"
	return os.WriteFile(file, []byte(before+begin+made+table+end+after), 0o644)
}

// lacks returns an error if a row has no counterpart in the table of the file. The last number of a
// version is left aside: Debian mends a server without notice.
func lacks(file string, rows []row) error {
	_, between, _, err := cut(file)
	if err != nil {
		return err
	}
	for _, r := range rows {
		series := r.version[:strings.LastIndex(r.version, ".")+1]
		if !strings.Contains(between, fmt.Sprintf("| %s | %s", r.server, series)) {
			return fmt.Errorf("the table in %s has no %s %sx: run make servers, and remove what Debian no longer has", file, r.server, series)
		}
	}
	return nil
}
