package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/lockstep-go/lockstep/backends/embedded"
	client "github.com/redis/go-redis/v9"
)

const programEnv = "LOCKSTEP_QUICKSTART_TEST_PROGRAM"

// The test binary is the program as well, so that what it runs is built with the race detector if the tests are.
func TestMain(m *testing.M) {
	if isWorker() || os.Getenv(programEnv) != "" {
		main()
		return
	}
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // or each of the many processes takes a second to exit
	os.Exit(m.Run())
}

// program is the whole program with its output in pipes and a directory of its own for temporary files.
func program(t *testing.T, addr string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	temp := t.TempDir()
	t.Cleanup(func() {
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("temporary files are left: %v %v", left, err)
		}
	})
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), programEnv+"=1", "REDIS_ADDR="+addr, "TMPDIR="+temp)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

func TestTheProgramInAPipe(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, addr := range map[string]string{"with its own server": "", "with REDIS_ADDR": server.Addr()} {
		t.Run(name, func(t *testing.T) {
			cmd, stdout, stderr := program(t, addr, "-increments", "40")
			began := time.Now()
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("took %v", took)
			}
			if stderr.Len() > 0 {
				t.Errorf("stderr: %s", stderr)
			}
			text := stdout.String()
			if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
				t.Errorf("control character %q in a pipe", text[i])
			}
			for _, want := range []string{"SIGKILL for ", "With the lock, no update was lost."} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			cell := func(row string, i int) string {
				fields := strings.Fields(line(t, text, row))
				return fields[len(fields)-i]
			}
			for row, want := range map[string]string{
				"increments expected": "160", "increments found": "160", "lost updates": "0", "overlaps": "0",
			} {
				if got := cell(row, 1); got != want {
					t.Errorf("%s with lock: %s, want %s", row, got, want)
				}
			}
			if got := cell("increments expected", 2); got != "160" {
				t.Errorf("increments expected without lock: %s", got)
			}
			took, err := time.ParseDuration(cell("SIGKILL to next", 2) + "s")
			if err != nil || took < leaseTTL/3 || took > 10*leaseTTL {
				t.Errorf("took over after %v %v", took, err)
			}
		})
	}
	redis := client.NewClient(&client.Options{Addr: server.Addr()})
	defer redis.Close()
	if left, err := redis.Keys(t.Context(), "*").Result(); err != nil || len(left) > 0 {
		t.Errorf("keys are left: %v %v", left, err)
	}
}

func line(t *testing.T, text, start string) string {
	t.Helper()
	_, table, _ := strings.Cut(text, "\nResult\n")
	for l := range strings.Lines(table) {
		if strings.HasPrefix(strings.TrimSpace(l), start) {
			return l
		}
	}
	t.Fatalf("no row %q in:\n%s", start, text)
	return ""
}

// nobody listens there. A port that was free a moment ago may be that of a server of another test.
const nobody = "127.0.0.1:1"

func TestAServerThatIsNotThere(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, addr := range map[string]string{"refuses": nobody, "is silent": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			cmd, stdout, stderr := program(t, addr)
			began := time.Now()
			exit := (*exec.ExitError)(nil)
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v, want exit status 1", err)
			}
			if took := time.Since(began); took > patience+3*time.Second {
				t.Errorf("took %v", took)
			}
			if want := "quickstart: cannot lock at " + addr + ": "; !strings.HasPrefix(stderr.String(), want) ||
				strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("stderr is %q, want one line that begins with %q", stderr, want)
			}
			if strings.Contains(stdout.String(), "Result") {
				t.Errorf("it went on:\n%s", stdout)
			}
		})
	}
}

func TestAnInterruptEndsAllAndCleansUp(t *testing.T) {
	cmd, _, stderr := program(t, "", "-increments", "1000000")
	cmd.Stdout = nil
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var begun [64]byte
	for seen := ""; !strings.Contains(seen, "without a lock"); {
		n, err := stdout.Read(begun[:])
		if seen += string(begun[:n]); err != nil {
			t.Fatal(seen, err)
		}
	}
	time.Sleep(300 * time.Millisecond) // into the first race
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := io.Copy(io.Discard, stdout); err != nil {
		t.Fatal(err)
	}
	exit := (*exec.ExitError)(nil)
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit status 1", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if !strings.Contains(stderr.String(), "interrupt") {
		t.Errorf("stderr: %s", stderr)
	}
}

// A worker must not outlive a parent that was killed: all it has of it then is a pipe that ends.
func TestAWorkerEndsWithThePipe(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, began := range map[string]bool{"before it begins": false, "while it works": true} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "counter")
			if err := writeCounter(file, 0); err != nil {
				t.Fatal(err)
			}
			w, err := start(t.Context(), task{Role: roleLocked, Addr: server.Addr(), Key: name, File: file, Times: 1e6})
			if err != nil {
				t.Fatal(err)
			}
			defer w.stop()
			if began {
				w.begin()
				if _, err := w.next(); err != nil {
					t.Fatal(err)
				}
			}
			w.stdin.Close()
			watchdog := time.AfterFunc(5*time.Second, w.stop)
			for err = nil; err == nil; {
				_, err = w.next()
			}
			if !watchdog.Stop() {
				t.Fatal("it goes on")
			}
			if !strings.Contains(err.Error(), errParentGone.Error()) {
				t.Errorf("ended with %v, want %v", err, errParentGone)
			}
		})
	}
}

// The checks of the locked run must be able to fail.
func TestARunWithoutALockIsAtFault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counter")
	got, err := race(t.Context(), task{Role: roleUnlocked, File: file, Times: 200})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.holds) != 800 || got.expected != 800 {
		t.Errorf("%d holds of %d expected, want 800", len(got.holds), got.expected)
	}
	if got.fault() == nil {
		t.Errorf("found %d of %d, and no fault", got.found, got.expected)
	}
}

func TestAWorkerThatFailsEndsTheRace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	file := filepath.Join(t.TempDir(), "counter")
	_, err := race(ctx, task{Role: roleLocked, Addr: nobody, Key: "k", File: file, Times: 1})
	if err == nil || !strings.Contains(err.Error(), "connection refused") || ctx.Err() != nil {
		t.Errorf("race: %v, want what the worker says", err)
	}
}
