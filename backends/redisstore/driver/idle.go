package driver

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	testAfter = 5 * time.Second // of idling
	testLimit = time.Second     // for the answer
)

// Idle keeps calls off connections that died while nobody used them: the server has closed them, or
// a load balancer or NAT has forgotten them without a reset. It is for the connections of one client
// whose library lends each to one call at a time.
//
// A connection that was idle for over five seconds is tested before anything is written on it: by PING,
// whose answer must come within a second. Any answer will do, also NOPERM. If none comes, the write
// fails, with an error for which [IsUnused] is true: nothing of the call was sent, and it can go to
// the next connection. After a test without an answer, connections that were idle all the while are
// taken for dead at once, or each would cost a second.
//
// A connection can end between the test and the call, or when it was idle for less. Then the error
// of the call has a method Stale() bool, which is true: see [WireError.Stale].
type Idle struct {
	born   sync.Once
	clock  clock
	silent atomic.Int64 // when a test had no answer; connections that were not used since are dead
	broken atomic.Int64 // when an idle connection was found broken; those not used since are tested
}

// Watch returns a connection to use in place of c, which is new.
func (i *Idle) Watch(c net.Conn) net.Conn {
	if _, twice := c.(interface{ idleConn() }); twice { // of another store on the client
		return c
	}
	i.born.Do(func() { i.clock = newClock() })
	w := &idleConn{rested: newRested(c, i.clock), of: i}
	if addr := c.RemoteAddr(); addr != nil {
		w.start.addr = addr.String()
	}
	if s, ok := c.(syscall.Conn); ok { // go-redis looks for the end of idle connections by it
		return idleSysConn{w, s}
	}
	return w
}

type idleConn struct {
	*rested
	of    *Idle
	start opening

	reading sync.Mutex // held while somebody reads: a subscription is not idle
	mu      sync.Mutex
	due     time.Time // the deadline of writes
}

type idleSysConn struct {
	*idleConn
	syscall.Conn
}

func (c *idleConn) idleConn() {}

func (c *idleConn) Read(b []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err := c.rested.Read(b)
	c.start.read(b[:n])
	err = c.noted(err)
	if n == 0 && isEnd(err) {
		err = c.start.explain(err)
	}
	return n, err
}

func (c *idleConn) Write(b []byte) (int, error) {
	if refused := c.start.refusal(); refused != nil {
		return 0, refused
	}
	used, idle := c.used.Load(), c.idle()
	if idle >= testAfter || used < c.of.broken.Load() {
		if err := c.test(used); err != nil {
			return 0, stale{err, true}
		}
	}
	n, err := c.writeAfter(idle, b)
	if n == 0 && isStale(err) { // there is one call at a time
		err = stale{err, true}
	}
	err = c.noted(err)
	if isEnd(err) {
		err = c.lastWords(err)
	}
	return n, err
}

func (c *idleConn) noted(err error) error {
	if isStale(err) {
		c.of.broken.Store(c.clock.now())
	}
	return err
}

// lastWords is for a write that failed: the server may have said why before it closed.
func (c *idleConn) lastWords(err error) error {
	if c.start.begun.Load() || !c.reading.TryLock() {
		return err
	}
	defer c.reading.Unlock()
	buf := make([]byte, 1024)
	_ = c.SetReadDeadline(time.Now().Add(restedFor)) // nothing else is read after the end
	n, _ := c.Conn.Read(buf)
	c.start.read(buf[:n])
	return c.start.explain(err)
}

func (c *idleConn) SetDeadline(t time.Time) error {
	c.writeBy(t)
	return c.Conn.SetDeadline(t)
}

func (c *idleConn) SetWriteDeadline(t time.Time) error {
	c.writeBy(t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *idleConn) writeBy(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = t
}

// errSilent is, for the client library, the end of the connection.
var errSilent = fmt.Errorf("idle since before another connection was found dead: %w", io.EOF)

// test asks whether the connection still leads to a server. It must answer by a simple string or an
// error: anything else, such as a push, would mix up what is asked and what is answered.
func (c *idleConn) test(used int64) error {
	if !c.reading.TryLock() {
		return nil
	}
	defer c.reading.Unlock()
	if used < c.of.silent.Load() {
		return errSilent
	}
	c.mu.Lock()
	due := c.due
	c.mu.Unlock()
	end := time.Now().Add(testLimit)
	if !due.IsZero() && due.Before(end) {
		end = due
	}
	hurry := time.Until(end) < restedFor // a test that short says nothing of the others
	err := c.ping(end)
	switch {
	case err == nil:
		c.used.Store(c.clock.now())
		_ = c.SetReadDeadline(time.Time{})
		err = c.Conn.SetWriteDeadline(due)
	case !isTimeout(err):
		c.of.broken.Store(c.clock.now())
	case !hurry:
		c.of.silent.Store(c.clock.now())
	}
	return err
}

func (c *idleConn) ping(end time.Time) error {
	if err := c.Conn.SetDeadline(end); err != nil {
		return err
	}
	if _, err := c.Conn.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return err
	}
	var reply []byte
	for buf := make([]byte, 512); !bytes.HasSuffix(reply, []byte("\r\n")); {
		n, err := c.Conn.Read(buf)
		if reply = append(reply, buf[:n]...); err != nil {
			return err
		}
	}
	if (reply[0] != '+' && reply[0] != '-') || bytes.Count(reply, []byte("\n")) != 1 {
		return io.ErrUnexpectedEOF
	}
	return nil
}
