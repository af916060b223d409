package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

const heading = "What no test runs"

var quoted = regexp.MustCompile("`([^`]+)`")

// listed reads the tables of the section with that heading. In each row the first column has a name
// between backquotes, and the second one the reason. A name is a declaration, such as
// locker.Client.Lock, or a package.
func listed(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reasons, inside := map[string]string{}, false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			inside = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
		}
		cells := strings.Split(line, "|")
		if !inside || len(cells) != 4 { // the first and the last are empty
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			reasons[name[1]] = strings.TrimSpace(cells[2])
		}
	}
	if len(reasons) == 0 {
		return nil, fmt.Errorf("%s has no section %q with a table", file, heading)
	}
	return reasons, nil
}
