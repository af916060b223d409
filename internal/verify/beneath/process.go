package beneath

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Process runs TestProcess of this test binary in a process of its own, which sees env. It ends with the test, or before.
func Process(t *testing.T, env ...string) (cmd *exec.Cmd, in io.Writer, out *bufio.Reader) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcess$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), env...)
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
