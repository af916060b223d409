package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// clockSource is a library that is loaded before the C library of a server. libfaketime would do the same for other programs;
// this redis-server ends at once with it.
//
//go:embed clock/clock.c
var clockSource []byte

// WithMovableClock lets a test move the wall clock of a server with [Server.MoveClock]. It needs a C compiler, and skips or
// fails like [Require] without one.
func WithMovableClock() Option { return func(c *config) { c.movable = true } }

// MoveClock sets the wall clock of the server to by more than the clock of this machine, at once and until it is set again,
// also across restarts. Its monotonic clock goes on as before. It is for servers started with [WithMovableClock].
func (s *Server) MoveClock(by time.Duration) {
	s.tb.Helper()
	f, err := os.OpenFile(s.clockFile(), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds())), 0) //nolint:gosec // the bits count
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.tb.Errorf("redistest: %v", err)
	}
}

func (s *Server) clockFile() string { return filepath.Join(s.dir, "clock") }

// clockEnv is what makes the process load the library.
func (s *Server) clockEnv() ([]string, error) {
	if s.shim == "" {
		return nil, nil
	}
	if _, err := os.Stat(s.clockFile()); errors.Is(err, fs.ErrNotExist) { // the first start
		if err := os.WriteFile(s.clockFile(), make([]byte, 8), 0o600); err != nil {
			return nil, err
		}
	}
	return []string{"LD_PRELOAD=" + s.shim, "LOCKSTEP_CLOCK=" + s.clockFile()}, nil
}

// buildShim compiles the library and returns its path.
func buildShim(tb testing.TB) string {
	tb.Helper()
	compiler, err := exec.LookPath("cc")
	switch {
	case err == nil:
	case os.Getenv("LOCKSTEP_REQUIRE_REDIS") == "1":
		tb.Fatalf("there is no C compiler, and LOCKSTEP_REQUIRE_REDIS=1 forbids to skip: %v", err)
	default:
		tb.Skip("SKIPPED: there is no C compiler (cc) to move the clock of a server with; LOCKSTEP_REQUIRE_REDIS=1 makes this a failure")
	}
	dir := tb.TempDir()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		tb.Fatalf("redistest: %v\n%s", err, out)
	}
	return library
}
