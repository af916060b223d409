package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

// event is a line of `go test -json`; see cmd/test2json.
type event struct {
	Action     string
	Package    string
	Test       string
	Output     string
	Key, Value string // of an attribute
	Elapsed    float64
}

// A follower reads events, and prints the output of tests that fail.
type follower struct {
	progress *progress
	lines    bool // print what go test says of each package, and not the progress
	table    matrix.Table
	ended    []ended // tests and subtests that have passed or skipped
	printed  map[string][]string
	used     time.Duration // CPU time of the commands that have ended
}

// ended is a test or a subtest that has passed or skipped.
type ended struct {
	folder, name string
	skipped      bool
	reason       string // what it has printed
}

// follow reads events to the end, even after a wrong one, since go test would otherwise wait for
// ever.
func (f *follower) follow(in *bufio.Reader) error {
	f.printed = make(map[string][]string)
	var wrong []error
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil { // output of the build
				f.progress.print(string(line))
			} else if err := f.handle(e); err != nil {
				wrong = append(wrong, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return errors.Join(wrong...)
		case err != nil:
			return errors.Join(append(wrong, err)...)
		}
	}
}

// raceReport begins a report of the race detector. It can stand in the output of a subtest that has
// passed, while another one fails for it.
const raceReport = "WARNING: DATA RACE\n"

const module = "github.com/lockstep-go/lockstep"

func (f *follower) handle(e event) error {
	p := f.progress
	name := strings.TrimSuffix(e.Package+"."+e.Test, ".")
	switch e.Action {
	case "run", "cont":
		p.running[name] = true
	case "pause":
		delete(p.running, name)
	case "output":
		f.printed[name] = append(f.printed[name], e.Output)
	case "attr":
		if f.table.Count(name, e.Key, e.Value) {
			break
		}
		known, err := f.table.Add(e.Key, e.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if known {
			p.cells++
		}
	case "build-output":
		p.print(e.Output)
	case "pass", "fail", "skip":
		delete(p.running, name)
		if e.Action == "fail" && e.Test == "" {
			p.print(f.unended(e.Package))
		}
		switch {
		case e.Action == "fail", slices.Contains(f.printed[name], raceReport):
			p.print(strings.Join(f.printed[name], ""))
		case e.Test == "" && f.lines:
			p.print(lastOf(f.printed[name]))
		case e.Test != "":
			folder := strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
			if folder == "" {
				folder = "."
			}
			f.ended = append(f.ended, ended{folder, e.Test, e.Action == "skip", said(f.printed[name])})
		}
		if e.Test != "" {
			p.done[e.Action]++
		}
		delete(f.printed, name)
		p.last = name
	}
	if !f.lines {
		p.show()
	}
	return nil
}

// unended returns what the tests of a package have printed that did not end, and forgets it. go test gives the
// panic of a package whose time is over to one of them.
func (f *follower) unended(pkg string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(f.printed)) {
		if strings.HasPrefix(name, pkg+".Test") {
			text += strings.Join(f.printed[name], "")
			delete(f.printed, name)
		}
	}
	return text
}

// lastOf returns the line in which go test says how a package has ended.
func lastOf(printed []string) string {
	if len(printed) == 0 {
		return ""
	}
	return printed[len(printed)-1]
}

// position stands before what a test prints.
var position = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)

// said returns the last thing that a test has printed, without its position.
func said(printed []string) string {
	text := ""
	for _, line := range printed {
		if at := position.FindString(line); at != "" {
			text = strings.TrimSpace(line[len(at):])
		}
	}
	return text
}
