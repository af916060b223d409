package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const programEnv = "LOCKSTEP_COMPARE_TEST_PROGRAM"

// The test binary is also the program. It keeps the variable for the owners, which it starts itself.
func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheCommandTellsACellWithAnOwnerInAnotherProcess(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-only", "pause", "-strategy", "fenced")
	cmd.Env = append(os.Environ(), programEnv+"=1", "REDIS_ADDR=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Resource  refuses what ") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTheCommandFailsWithTheNamesThatExist(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-strategy", "redlok")
	cmd.Env = append(os.Environ(), programEnv+"=1", "REDIS_ADDR=")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), `compare: no strategy "redlok": there are single, fair,`) {
		t.Errorf("%v\n%s", err, out)
	}
}
