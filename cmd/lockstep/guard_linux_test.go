package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/verify/redistest"
)

// TestAHelperWithoutItsArgumentsSaysSo: somebody may call it by hand.
func TestAHelperWithoutItsArgumentsSaysSo(t *testing.T) {
	for _, name := range []string{"lockstep-guard", "lockstep-start"} {
		for _, args := range [][]string{{name}, {name, "1"}} {
			c := prepare(t, "")
			c.Args = args
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if code := c.code(); code != 64 || strings.Contains(c.err.String(), "panic") {
				t.Errorf("%v: exit %d: %s", args, code, c.err.String())
			}
		}
	}
}

func TestAGuardKeepsNoFileOfTheCaller(t *testing.T) {
	s := redistest.Start(t)
	c := prepare(t, url(s), "run", "k", "--", "sh", "-c", "readlink /proc/$$/fd/6; echo; "+
		"for p in /proc/[0-9]*; do case $(tr '\\0' ' ' < $p/cmdline 2>/dev/null) in *guard*' k ') readlink $p/fd/*; esac; done")
	file := filepath.Join(t.TempDir(), "of-the-caller")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.ExtraFiles = []*os.File{f, f, f, f, f}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if code := c.code(); code != 0 {
		t.Errorf("exit %d: %s", code, c.err.String())
	}
	command, guard, _ := strings.Cut(c.out.String(), "\n\n")
	if command != file {
		t.Errorf("the command does not have it: %q", command)
	}
	if !strings.Contains(guard, "/dev/null") || strings.Contains(guard, file) {
		t.Errorf("the guard has: %s", guard)
	}
}
