package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
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
// the next call and across restarts. The monotonic clock goes on as before. It is for servers
// started with [WithMovableClock].
func (s *Server) MoveClock(by time.Duration) {
	s.tb.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, clockFile), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds())), 0) //nolint:gosec // the bits count
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.tb.Errorf("redistest: %v", err)
	}
}

const clockFile = "clock"
