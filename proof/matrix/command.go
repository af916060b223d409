package matrix

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Command returns the command that runs one test of a package again, and no other. The name is one
// of [testing.T.Name], of a test or of a subtest.
func Command(pkg, name string, flags ...string) string {
	var pattern []string
	// go test splits names and patterns there
	for segment := range strings.SplitSeq(strings.ReplaceAll(name, " ", "_"), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(segment)+"$")
	}
	return strings.Join(append([]string{fmt.Sprintf("go test %s -run '%s'", pkg, strings.Join(pattern, "/"))}, flags...), " ")
}

// Again returns the [Command] that runs a test in its present size, in a package such as "./p" or
// "-C module .".
func Again(pkg, name string) string {
	c := Command(pkg, name, "-v -timeout 1h")
	if os.Getenv("LOCKSTEP_TORTURE") == "1" {
		return "LOCKSTEP_TORTURE=1 " + c
	}
	return c
}

var runFlag = regexp.MustCompile(`-run (?:'([^']*)'|(\S+))`)

// selects tells whether the command runs a test of that name, even if only for its subtests.
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
