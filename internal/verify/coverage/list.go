package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

const heading = "What no test runs"

var quoted = regexp.MustCompile("`([^`]+)`")

// listed reads the section of that heading: what each row of its tables has between backquotes in the first column, with the
// second one as the reason. What is listed is a declaration, as in locker.Client.Lock, or a package.
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
		if !inside || len(cells) != 4 { // what is before the first and behind the last is empty
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
