package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockstep-go/lockstep/proof/redistest"
	"golang.org/x/sys/unix"
)

// unread is the writing end of a pipe that nobody reads any more.
func unread(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() { w.Close() })
	return w
}

func TestALineThatNobodyReadsEndsNothing(t *testing.T) {
	s := redistest.Start(t)
	t.Run("run", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "status")
		c := prepare(t, url(s), "run", "-v", "a", "--", "sh", "-c", "cat /proc/self/status > "+file+"; exit 7")
		c.Stderr = unread(t)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if code := c.code(); code != 7 || inspect(t, url(s), "a").Held {
			t.Errorf("exit %d: %v, held: %t", code, c.ProcessState, inspect(t, url(s), "a").Held)
		}
		status, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var ignored uint64
		_, text, _ := strings.Cut(string(status), "SigIgn:")
		if _, err := fmt.Sscanf(text, "%x", &ignored); err != nil || ignored&(1<<(syscall.SIGPIPE-1)) != 0 {
			t.Errorf("the command ignores SIGPIPE, as its parent does: %x, %v", ignored, err)
		}
	})
	t.Run("acquire", func(t *testing.T) {
		c := prepare(t, url(s), "acquire", "b")
		c.Stdout = unread(t)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if code := c.code(); code != 64 || inspect(t, url(s), "b").Held {
			t.Errorf("exit %d: %v, held: %t, %s", code, c.ProcessState, inspect(t, url(s), "b").Held, c.err.String())
		}
	})
}

func TestASignalEndsTheWaitOfAcquire(t *testing.T) {
	s := redistest.Start(t)
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		s.Do("SET", "w", "x", "PX", "600000")
		c := begin(t, url(s), "acquire", "w")
		await(t, "it waits", func() bool { return inspect(t, url(s), "w").Waiting == 1 })
		_ = c.Process.Signal(sig)
		if code := c.code(); code != want || c.out.String() != "" {
			t.Errorf("%v: exit %d, want %d: %s%s", sig, code, want, c.out.String(), c.err.String())
		}
		await(t, "it has left the queue", func() bool { return inspect(t, url(s), "w").Waiting == 0 })
	}
}

func TestALockThatIsHeldIsNoNewsToCron(t *testing.T) {
	s := redistest.Start(t)
	s.Do("SET", "held", "x", "PX", "600000")
	if code, out, err := run(t, url(s), "run", "-n", "-E", "0", "held", "--", "true"); code != 0 || out+err != "" {
		t.Errorf("exit %d: %s%s", code, out, err)
	}
	if code, _, err := run(t, url(s), "run", "-v", "-n", "-E", "0", "held", "--", "true"); code != 0 || !strings.Contains(err, "held by") {
		t.Errorf("-v: exit %d: %s", code, err)
	}
}

// TestAMissingPermissionIsNotWaitedFor: without the mend it ends after ten minutes.
func TestAMissingPermissionIsNotWaitedFor(t *testing.T) {
	all := redistest.StartN(t, 3)
	var store []string
	for _, s := range all[:2] {
		s.Do("ACL", "SETUSER", "weak", "on", "nopass", "~*", "&*", "+hello")
		store = append(store, "redis://weak:any@"+s.Addr())
	}
	c := begin(t, strings.Join(append(store, url(all[2])), " "), "run", "-w", "10m", "a", "--", "true")
	await(t, "it ends", c.ended)
	if code := c.code(); code != 77 {
		t.Errorf("exit %d: %s", code, c.err.String())
	}
}

func TestALockUnderWhichNothingRanIsFreeAtOnce(t *testing.T) {
	s := redistest.Start(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"broken": "#!/no/such/interpreter\n", "text": "no program"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		code, _, err := run(t, url(s), "run", "-at-least", "10m", "-max-ttl", "10m", name, "--", file)
		if code != 126 && code != 127 || inspect(t, url(s), name).Held {
			t.Errorf("%s: exit %d, held: %t, %s", name, code, inspect(t, url(s), name).Held, err)
		}
	}
	// A command that ran and failed keeps it.
	if code, _, err := run(t, url(s), "run", "-at-least", "10m", "-max-ttl", "10m", "ran", "--", "false"); code != 1 || !inspect(t, url(s), "ran").Held {
		t.Errorf("exit %d: %s", code, err)
	}
}

// A minimum hold is relied on by nobody, so a server that has been up for the longest TTL grants it.
func TestAMinimumHoldDoesNotMakeQuarantineLonger(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	quarantine := []string{"run", "-quarantine", "-max-ttl", "9s", "-ttl", "9s"}
	await(t, "the quarantine of nine seconds is over", func() bool {
		code, _, err := run(t, url(s), append(quarantine, "short", "--", "true")...)
		if code != 0 && code != 77 {
			t.Fatalf("exit %d: %s", code, err)
		}
		return code == 0
	})
	code, _, err := run(t, url(s), append(quarantine, "-at-least", "10m", "long", "--", "true")...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, err)
	}
	if k := inspect(t, url(s), "long"); !k.Held || k.Holds[0].LeftMS < 5*60*1000 {
		t.Errorf("it is not held for the rest of -at-least: %+v", k)
	}
}

func TestTheEndOfMaxIsNoLoss(t *testing.T) {
	s := redistest.Start(t)
	code, _, err := run(t, url(s), "run", "-json", "-max", "0.1", "a", "--", "sleep", "600")
	if code != 124 || !strings.Contains(err, `"exit":124`) || strings.Contains(err, `"lost"`) {
		t.Errorf("exit %d: %s", code, err)
	}
}

// The command has ended long before -max, and what it has left in its group only after it.
func TestMaxDoesNotChangeTheCodeOfACommandThatHasEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	code, _, err := run(t, url(s), "run", "-json", "-ttl", "29s", "-grace", "14s", "-max", "5s", "a", "--",
		"sh", "-c", `trap "" TERM; sleep 7 >/dev/null 2>&1 & exit 3`)
	if code != 3 || !strings.Contains(err, `"child":3,"exit":3`) || strings.Contains(err, "-max") {
		t.Errorf("exit %d: %s", code, err)
	}
}

// TestAStandardErrorThatNobodyReadsHoldsUpNothing: lockstep must not wait for a terminal after
// Ctrl-S, or its guard kills the command.
func TestAStandardErrorThatNobodyReadsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil { // not of os: it blocks, as a terminal does
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(ends[0]), "reader"), os.NewFile(uintptr(ends[1]), "writer")
	defer w.Close()
	defer r.Close()
	size, err := unix.FcntlInt(r.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "go")
	c := prepare(t, url(s), "run", "-v", "-ttl", "9s", "a", "--",
		"sh", "-c", "echo started; while ! [ -e "+file+" ]; do sleep 0.02; done; sleep 10; echo done")
	c.Stderr = w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it runs", func() bool { return strings.Contains(c.out.String(), "started") })
	go w.Write(make([]byte, size)) // there is something in it: the rest of this waits
	await(t, "the pipe is full", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}, 0)
		return err == nil && n == 0
	})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, "it ends", func() bool { return c.ended() || strings.Contains(c.out.String(), "done") })
	if !strings.Contains(c.out.String(), "done") {
		t.Error("the command was killed")
	}
	await(t, "the lock is free", func() bool { return !inspect(t, url(s), "a").Held })
	go io.Copy(io.Discard, r)
	if code := c.code(); code != 0 {
		t.Errorf("exit %d: %v", code, c.ProcessState)
	}
}
