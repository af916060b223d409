package repository

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	span    = regexp.MustCompile("(?s)```\\w*\n(.*?)```|`([^`]+)`")
	gotest  = regexp.MustCompile(`go test (?:'[^']*'|[^;&])*`)
	folder  = regexp.MustCompile(`cd (\S+) &&|go test -C (\S+) `)
	dotted  = regexp.MustCompile(`(?:^| )\./(\S+)`)
	pattern = regexp.MustCompile(`-run (?:'([^']*)'|(\S+))`)
)

// TestCommandsInTheDocumentationRunTests checks each `go test … -run` of the documentation: the
// pattern selects a test of that package, or of any package if the command names none. A command with
// TEST stands below a table of such patterns. It does not check names of subtests, which only a run knows.
func TestCommandsInTheDocumentationRunTests(t *testing.T) {
	tests := declaredTests(t)
	commands := 0
	for _, file := range documents(t) {
		text := strings.ReplaceAll(read(t, file), `\|`, "|") // in tables | is written like this
		var rows []string                                    // patterns of the table
		for _, code := range span.FindAllStringSubmatch(text, -1) {
			lines := strings.Split(code[1], "\n")
			if strings.HasPrefix(code[2], "^Test") {
				rows = append(rows, code[2])
			}
			if code[2] != "" {
				lines = []string{strings.Join(strings.Fields(code[2]), " ")}
			}
			for _, line := range lines {
				for _, command := range gotest.FindAllString(line, -1) {
					run := pattern.FindStringSubmatch(command)
					if run == nil || run[1]+run[2] == "^$" { // it is for benchmarks
						continue
					}
					commands++
					in := ""
					if p := dotted.FindStringSubmatch(command); p != nil {
						in = p[1]
					}
					if module := folder.FindStringSubmatch(line); module != nil {
						in = path.Join(module[1]+module[2], in)
					}
					patterns := []string{run[1] + run[2]}
					if patterns[0] == "TEST" && len(rows) > 0 {
						patterns, rows = rows, nil
					}
					for _, p := range patterns {
						if !selectsOne(tests, in, p) {
							t.Errorf("%s: %s runs no test %s", file, line, p)
						}
					}
				}
			}
		}
		if strings.Contains(text, "| `` |") {
			t.Errorf("%s: a cell without a command", file)
		}
	}
	if commands < 5 {
		t.Errorf("only %d commands; is the pattern of this test right?", commands)
	}
}

// selectsOne tells whether a pattern of -run selects a test in a package.
func selectsOne(tests map[string][]string, in, pattern string) bool {
	first, err := regexp.Compile(strings.Split(pattern, "/")[0])
	if err != nil {
		return false
	}
	for name, packages := range tests {
		if first.MatchString(name) && (in == "" || slices.Contains(packages, strings.TrimSuffix(in, "/"))) {
			return true
		}
	}
	return false
}
