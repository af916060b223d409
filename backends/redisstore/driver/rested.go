package driver

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

const restedFor = 100 * time.Millisecond // a connection that was not used for this long was idle

// Mark returns a connection to use in place of c, which is new. When it ends while it is idle, or
// under the first bytes that are written after a pause, before anything was read again, its error has
// a method Stale() bool, which is true. See [WireError.Stale].
//
// It does not say that nothing was sent. It is for client libraries that share one connection among
// calls. Others have [Idle], which tests connections besides.
func Mark(c net.Conn) net.Conn { return newRested(c, newClock()) }

// rested is a connection that knows whether it was idle.
type rested struct {
	net.Conn
	clock clock
	used  atomic.Int64 // when something was last read or written
	wrote atomic.Bool  // something, and nothing was read since
	was   atomic.Bool  // idle, and nothing was read since
}

func newRested(c net.Conn, by clock) *rested {
	r := &rested{Conn: c, clock: by}
	r.used.Store(by.now())
	return r
}

// clock tells monotonic times that are greater than zero.
type clock struct{ born time.Time }

func newClock() clock { return clock{time.Now()} }

func (c clock) now() int64 { return int64(time.Since(c.born)) + 1 }

func (c *rested) idle() time.Duration { return time.Duration(c.clock.now() - c.used.Load()) }

func (c *rested) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.used.Store(c.clock.now())
		c.wrote.Store(false)
		c.was.Store(false)
	case isEnd(err) && (c.was.Load() || !c.wrote.Load() && c.idle() >= restedFor):
		err = stale{err, false}
	}
	return n, err
}

func (c *rested) Write(b []byte) (int, error) { return c.writeAfter(c.idle(), b) }

func (c *rested) writeAfter(idle time.Duration, b []byte) (int, error) {
	if idle >= restedFor {
		c.was.Store(true)
	}
	c.wrote.Store(true)
	n, err := c.Conn.Write(b)
	c.used.Store(c.clock.now())
	if n == 0 && isEnd(err) && idle >= restedFor {
		err = stale{err, false} // others may have been sent before, and wait for their replies
	}
	return n, err
}

// stale is the error of a connection that ended while it was idle.
type stale struct {
	error
	unsent bool // nothing of the call was written
}

func (s stale) Unwrap() error { return s.error }
func (s stale) Stale() bool   { return true }
func (s stale) Unsent() bool  { return s.unsent }

// EndedIdle is err, the error of a call on a connection that nothing was sent on for so long before. If the
// connection has ended, the error has a method Stale() bool, which is true: see [WireError.Stale].
func EndedIdle(err error, idle time.Duration) error {
	if idle >= restedFor && isEnd(err) && !backends.Unsent(err) {
		return stale{err, false}
	}
	return err
}

func isStale(err error) bool {
	_, is := errors.AsType[stale](err)
	return is
}

// IsUnused tells that a call failed on a connection that ended while it was idle, before anything of
// the call was sent. Another connection may do.
func IsUnused(err error) bool {
	s, ok := errors.AsType[stale](err)
	return ok && s.unsent && backends.Unsent(err)
}
