package matrix

import (
	"fmt"
	"regexp"
	"strings"
)

// Command is what a user types to run one test of a package again, and nothing beside it: name is as of [testing.T.Name], that
// of a subtest, or that of all below one.
func Command(pkg, name string, flags ...string) string {
	var pattern []string
	for segment := range strings.SplitSeq(strings.ReplaceAll(name, " ", "_"), "/") { // go test splits names and patterns there, too
		pattern = append(pattern, "^"+regexp.QuoteMeta(segment)+"$")
	}
	return strings.Join(append([]string{fmt.Sprintf("go test %s -run '%s'", pkg, strings.Join(pattern, "/"))}, flags...), " ")
}

var runFlag = regexp.MustCompile(`-run (?:'([^']*)'|(\S+))`)

// selects tells whether a test of that name is among those that the command runs, be it for what is below it.
func selects(command, name string) bool {
	for _, run := range runFlag.FindAllStringSubmatch(command, -1) {
		if matches(strings.Split(run[1]+run[2], "/"), strings.Split(name, "/")) {
			return true
		}
	}
	return false
}

func matches(patterns, segments []string) bool {
	for i, p := range patterns[:min(len(patterns), len(segments))] {
		if ok, err := regexp.MatchString(p, segments[i]); !ok || err != nil {
			return false
		}
	}
	return true
}
