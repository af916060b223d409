package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// clockSource is a shim. libfaketime would do the same, but redis-server ends at once with it.
//
//go:embed clock/clock.c
var clockSource []byte

// WithMovableClock lets a test move the wall clock of a server with [Server.MoveClock]. It needs a
// C compiler; without one it skips or fails as [Require] does.
func WithMovableClock() Option { return func(c *config) { c.movable = true } }

// MoveClock sets the wall clock of the server: it is by ahead of the clock of this machine, until
// the next call and across restarts. It returns when the server sees that: Valkey 9 looks at the
// clock now and then, and counts on from there. The monotonic clock goes on as before. It is for
// servers started with [WithMovableClock].
func (s *Server) MoveClock(by time.Duration) {
	s.tb.Helper()
	moveClock(s.tb, filepath.Join(s.dir, clockFile), by)
	until(s.tb, "the server sees its clock", func() bool {
		reply, err := s.call(time.Second, "TIME")
		if err != nil { // it does not run: the next process sees the clock from its start
			return true
		}
		seconds, err := strconv.ParseInt(reply.([]any)[0].(string), 10, 64)
		return err == nil && time.Until(time.Unix(seconds, 0).Add(-by)).Abs() < time.Minute/4
	})
}

// MovableClock makes what lets a test move the wall clock of a server that is no Redis: the
// variables for its environment, and the func that moves its clock as [Server.MoveClock] does. Both
// use files in dir, which the server must be able to read.
func MovableClock(tb testing.TB, dir string) (env []string, move func(by time.Duration)) {
	tb.Helper()
	library := buildShim(tb, dir, "clock", clockSource)
	file, move := ClockFile(tb, dir)
	return []string{"LD_PRELOAD=" + library, file}, move
}

// ClockFile makes the file that says how far a clock is moved. It returns the variable that names the
// file, for the environment of a program that reads it, and the func that moves the clock.
func ClockFile(tb testing.TB, dir string) (env string, move func(by time.Duration)) {
	tb.Helper()
	file := filepath.Join(dir, clockFile)
	if err := os.WriteFile(file, make([]byte, 8), 0o644); err != nil { //nolint:gosec // another user runs the server
		tb.Fatalf("redistest: %v", err)
	}
	return "LOCKSTEP_CLOCK=" + file, func(by time.Duration) { moveClock(tb, file, by) }
}

func moveClock(tb testing.TB, file string, by time.Duration) {
	tb.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds())), 0) //nolint:gosec // the bits count
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		tb.Errorf("redistest: %v", err)
	}
}

const clockFile = "clock"
