package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWithoutAServerNothingPasses: an empty list is a mistake, unless somebody has said that it is not.
func TestWithoutAServerNothingPasses(t *testing.T) {
	for value, passes := range map[string]bool{"": false, "0": false, "1": true} {
		t.Setenv(without, value)
		if err := serve(nil, small, "", "", ""); (err == nil) != passes {
			t.Errorf("%s=%s: %v", without, value, err)
		}
	}
}

// TestASystemWithoutPackagesOfDebianIsAFailure runs .ci/servers where there is no apt-get, with an
// empty cache.
func TestASystemWithoutPackagesOfDebianIsAFailure(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED: there is no bash, which .ci/servers needs")
	}
	script, err := os.ReadFile("../../.ci/servers")
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	for _, tool := range []string{"mkdir", "mktemp", "rm"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(tools, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		argument, value, named string
		code                   int
	}{
		{"newest", "", "redis valkey", 1},
		{"newest", "0", "redis valkey", 1},
		{"newest", "1", "redis valkey", 0},
		{"mysql", "", "mysql", 1},
	} {
		cmd := exec.Command(bash, "-s", c.argument)
		cmd.Stdin = bytes.NewReader(script)
		cmd.Env = []string{"PATH=" + tools, "XDG_CACHE_HOME=" + t.TempDir(), without + "=" + c.value}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
		text := errs.String()
		if code := cmd.ProcessState.ExitCode(); code != c.code || out.Len() > 0 ||
			!strings.Contains(text, "LEFT OUT: no test runs on "+c.named) || strings.Contains(text, without+"=1") != (c.code == 1) {
			t.Errorf("%s, %s=%s: exit code %d, printed %q\n%s", c.argument, without, c.value, code, out.String(), text)
		}
	}
}
