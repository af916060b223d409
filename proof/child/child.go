// Package child runs the test binary once more, in a process of its own that can be killed, stopped
// or allowed to fail.
package child

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Start starts TestProcess of this test binary with the variables env, such as "ROLE=waiter". The
// caller writes to its standard input and reads its standard output. The process is killed when the
// test ends.
func Start(t testing.TB, env ...string) (cmd *exec.Cmd, in io.Writer, out *bufio.Reader) {
	t.Helper()
	cmd = Command(t, "TestProcess", env...)
	cmd.Args = append(cmd.Args, "-test.timeout=1h")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return cmd, in, bufio.NewReader(stdout)
}

// Command returns the command that runs one test of this test binary with the variables env. A test
// whose child runs the same test tells the two apart by a variable.
func Command(t testing.TB, test string, env ...string) *exec.Cmd {
	t.Helper()
	return Program(t, os.Args[0], test, env...)
}

// Program is Command for another test binary.
func Program(t testing.TB, path, test string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), env...)
	return cmd
}
