// Package goclock builds Go programs whose wall clock a test can move while they run. A Go program reads
// the clock without the C library, so what moves the clock of a C program (redistest.MovableClock) does not
// reach it. Build changes time.Now: it adds what the file of redistest.ClockFile says. The monotonic clock
// and all timers go on as before, as when NTP sets the clock of a computer.
package goclock

import (
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// source is a file of package time in the programs.
//
//go:embed moved.go.txt
var source []byte

// Build runs `go VERB -overlay … -o PATH ARGS` in dir, with a verb such as "build" and arguments such as
// ".", and returns the path of the program, which is removed at the end of the test. It compiles the
// standard library again, which takes minutes the first time.
func Build(tb testing.TB, dir, verb string, args ...string) (path string) {
	tb.Helper()
	if runtime.GOOS == "windows" {
		tb.Skip("goclock: package syscall can't map a file on Windows")
	}
	made := tb.TempDir()
	path = filepath.Join(made, "program")
	args = append([]string{verb, "-overlay", overlay(tb, dir, made), "-o", path}, args...)
	cmd := exec.CommandContext(tb.Context(), "go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("goclock: go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return path
}

// overlay writes to made what replaces files of package time, in the Go that builds in dir.
func overlay(tb testing.TB, dir, made string) (path string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "go", "env", "GOROOT")
	cmd.Dir = dir
	root, err := cmd.Output()
	if err != nil {
		tb.Fatalf("goclock: go env GOROOT: %v", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
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
		replace[name] = filepath.Join(made, filepath.Base(name))
		if err := os.WriteFile(replace[name], text, 0o600); err != nil {
			tb.Fatalf("goclock: %v", err)
		}
	}
	config, err := json.Marshal(map[string]any{"Replace": replace})
	path = filepath.Join(made, "overlay.json")
	if err == nil {
		err = os.WriteFile(path, config, 0o600)
	}
	if err != nil {
		tb.Fatalf("goclock: %v", err)
	}
	return path
}
