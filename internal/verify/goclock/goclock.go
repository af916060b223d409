// Package goclock builds Go programs whose wall clock a test can move while they run. A Go program asks
// the kernel itself for the time, so the library that moves the clock of a C program
// (redistest.MovableClock) does not reach it. Here time.Now is built with a change, and the program reads
// the file of redistest.ClockFile. The monotonic clock and all timers go on as before, as when NTP sets the
// clock of a computer.
package goclock

import (
	_ "embed"
	"encoding/json"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// source is a file of package time in the programs.
//
//go:embed moved.go.txt
var source []byte

// Build runs `go VERB -overlay … -o PATH ARGS` in dir, such as "test", "-c" or "build", and returns the
// path of the program. It ends with the test. The standard library is built anew, which takes minutes
// the first time.
func Build(tb testing.TB, dir, verb string, args ...string) (path string) {
	tb.Helper()
	made := tb.TempDir()
	path = filepath.Join(made, "program")
	args = append([]string{verb, "-overlay", overlay(tb, made), "-o", path}, args...)
	cmd := exec.CommandContext(tb.Context(), "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("goclock: go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return path
}

// overlay writes what replaces files of package time.
func overlay(tb testing.TB, dir string) (path string) {
	tb.Helper()
	folder := filepath.Join(build.Default.GOROOT, "src", "time")
	original := filepath.Join(folder, "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		tb.Fatalf("goclock: %v", err)
	}
	const call = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	changed := strings.Replace(string(text), call, call+"\tsec, nsec = moved(sec, nsec)\n", 1)
	if changed == string(text) {
		tb.Fatalf("goclock: time.Now of this version of Go does not begin with\n%s", call)
	}
	mine := map[string][]byte{original: []byte(changed), filepath.Join(folder, "moved.go"): source}
	replace := map[string]string{}
	for name, text := range mine {
		replace[name] = filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(replace[name], text, 0o600); err != nil {
			tb.Fatalf("goclock: %v", err)
		}
	}
	config, err := json.Marshal(map[string]any{"Replace": replace})
	path = filepath.Join(dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(path, config, 0o600)
	}
	if err != nil {
		tb.Fatalf("goclock: %v", err)
	}
	return path
}
