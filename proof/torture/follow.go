package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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

// follow reads events to the end, even after a wrong one, since go test would otherwise wait for
// ever. It prints the output of tests that fail, and counts the rest.
func follow(in *bufio.Reader, p *progress, table *matrix.Table) error {
	printed := make(map[string][]string) // by test
	var wrong []error
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil { // output of the build
				p.print(string(line))
			} else if err := handle(e, p, table, printed); err != nil {
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

func handle(e event, p *progress, table *matrix.Table, printed map[string][]string) error {
	name := strings.TrimSuffix(e.Package+"."+e.Test, ".")
	switch e.Action {
	case "run", "cont":
		p.running[name] = true
	case "pause":
		delete(p.running, name)
	case "output":
		printed[name] = append(printed[name], e.Output)
	case "attr":
		if table.Count(name, e.Key, e.Value) {
			break
		}
		known, err := table.Add(e.Key, e.Value)
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
		if e.Test != "" {
			p.done[e.Action]++
		}
		if e.Action == "fail" {
			p.print(strings.Join(printed[name], ""))
		}
		delete(printed, name)
		p.last = name
	}
	p.show()
	return nil
}
