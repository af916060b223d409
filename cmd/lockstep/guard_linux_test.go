package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
)

// TestAHelperWithoutItsArgumentsSaysSo: somebody may call it by hand.
func TestAHelperWithoutItsArgumentsSaysSo(t *testing.T) {
	for _, name := range []string{"lockstep-guard", "lockstep-start", "lockstep-keeper"} {
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

// TestAStoppedLockstepStillEndsItsCommandInOrder: its guard sends TERM before KILL.
func TestAStoppedLockstepStillEndsItsCommandInOrder(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := fmt.Sprintf("halted-%d", rand.Uint64())
	c := begin(t, url(s), "run", "-ttl", "15s", "-grace", "7s", "-holder", holder, "k", "--",
		"sh", "-c", "trap 'echo cleaned; exit 0' TERM; echo started; while :; do sleep 0.02; done")
	await(t, "it runs", func() bool { return strings.Contains(c.out.String(), "started") })
	_ = c.Process.Signal(syscall.SIGSTOP)
	await(t, "nothing lives", func() bool { return len(living(t, "LOCKSTEP_HOLDER="+holder)) == 0 })
	_ = c.Process.Signal(syscall.SIGCONT)
	if code := c.code(); code != 74 || !strings.Contains(c.out.String(), "cleaned") {
		t.Errorf("exit %d: %s%s", code, c.out.String(), c.err.String())
	}
}

// TestALockstepThatWasStoppedSaysWhatItsGuardDid: it must not say that TERM went to the command.
func TestALockstepThatWasStoppedSaysWhatItsGuardDid(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder := fmt.Sprintf("halted-%d", rand.Uint64())
	c := begin(t, url(s), "run", "-ttl", "6s", "-grace", "0", "-holder", holder, "k", "--", "sh", "-c", "echo started; exec sleep 600")
	await(t, "it runs", func() bool { return strings.Contains(c.out.String(), "started") })
	_ = c.Process.Signal(syscall.SIGSTOP)
	await(t, "nothing lives", func() bool { return len(living(t, "LOCKSTEP_HOLDER="+holder)) == 0 })
	_ = c.Process.Signal(syscall.SIGCONT)
	if code := c.code(); code != 74 || strings.Contains(c.err.String(), "TERM") {
		t.Errorf("exit %d: %s", code, c.err.String())
	}
}

// asRoot is the name of a copy of this binary that belongs to root and is setuid.
const asRoot = "lockstep-test-as-root"

func init() {
	if filepath.Base(os.Args[0]) != asRoot {
		return
	}
	err := syscall.Setuid(0)
	if err == nil {
		err = syscall.Exec("/bin/sh", append([]string{"sh"}, os.Args[1:]...), os.Environ())
	}
	fmt.Println(err)
	os.Exit(1)
}

// TestALockStaysHeldWhileACommandOfAnotherUserRuns: lockstep runs as nobody, and what is left of the
// command as root.
func TestALockStaysHeldWhileACommandOfAnotherUserRuns(t *testing.T) {
	if os.Getuid() != 0 {
		redistest.Missing(t, "a program that is setuid needs root")
	}
	dir, err := os.MkdirTemp("", "lockstep")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program, file := filepath.Join(dir, asRoot), filepath.Join(dir, "go")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain") // nobody may not read the folder of the test binary
	for name, mode := range map[string]os.FileMode{plain: 0o755, program: 0o755 | os.ModeSetuid} {
		text, err := os.ReadFile(path(os.Executable()))
		if err == nil {
			err = os.WriteFile(name, text, 0o755)
		}
		if err == nil {
			err = os.Chmod(name, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	probe := exec.Command(program, "-c", "id -u")
	probe.SysProcAttr = nobody
	if out, err := probe.CombinedOutput(); string(out) != "0\n" {
		redistest.Missing(t, "setuid has no effect here: %s, %v", out, err)
	}

	s := redistest.Start(t)
	c := prepare(t, url(s), "run", "-ttl", "29s", "-grace", "0.1", "k", "--",
		"sh", "-c", program+" -c 'echo started; while ! [ -e "+file+" ]; do sleep 0.02; done; echo done' & sleep 600")
	c.Path, c.SysProcAttr, c.Dir = plain, nobody, "/"
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Process.Kill()
	await(t, "it runs", func() bool { return strings.Contains(c.out.String(), "started") })
	_ = c.Process.Signal(syscall.SIGTERM)
	await(t, "it says so, or ends", func() bool { return strings.Contains(c.err.String(), "another user") || c.ended() })
	if c.ended() || !inspect(t, url(s), "k").Held {
		t.Errorf("the lock is free: %s", c.err.String())
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := c.code(); code != 143 || !strings.Contains(c.out.String(), "done") || inspect(t, url(s), "k").Held {
		t.Errorf("exit %d: %s%s", code, c.out.String(), c.err.String())
	}
}
