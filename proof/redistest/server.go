// Package redistest gives tests real Redis servers that can be killed, paused and
// restarted, and a proxy that loses, delays and cuts chosen commands.
//
//	s := redistest.Start(t)
//	p := redistest.NewProxy(t, s.Addr())
//	lost := p.Add(redistest.Rule{Commands: []string{"SET"}, Fault: redistest.LoseReply})
//	// … let the client under test talk to p.Addr() …
//	<-lost.Fired()                  // the SET was executed and its reply swallowed
//	s.Do("GET", "key")              // asks the server itself, past the proxy
//
// Servers and proxies end with the test that made them. Nothing here uses a client library, so a
// bug of a client cannot hide in its own test bed.
package redistest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/daemon"
)

// Start runs one redis-server without persistence on a free loopback port, and returns when it
// answers PING. The server is killed when the test ends, even if it is paused then. On Linux it is
// also killed when the test process dies.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return StartN(tb, 1, opts...)[0]
}

// StartN runs n independent servers.
func StartN(tb testing.TB, n int, opts ...Option) []*Server {
	tb.Helper()
	Require(tb)
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	if c.movable {
		c.shims = append(c.shims, shim{buildShim(tb, tb.TempDir(), "clock", clockSource), "LOCKSTEP_CLOCK", clockFile, 8})
	}
	if c.volatile {
		c.shims = append(c.shims, shim{buildShim(tb, tb.TempDir(), "disk", diskSource), "LOCKSTEP_DISK", journalFile, 0})
	}
	servers, errs := make([]*Server, n), make([]error, n)
	var starts sync.WaitGroup
	for i := range n {
		dir := tb.TempDir()
		starts.Go(func() { servers[i], errs[i] = launch(tb, dir, c) })
	}
	starts.Wait()
	for _, err := range errs {
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
	}
	return servers
}

// An Option changes how a server is started.
type Option func(*config)

type config struct {
	args     []string
	password string
	sentinel string // the configuration file of a sentinel; empty: not one
	movable  bool   // its clock can be moved
	volatile bool   // its disk can lose data
	shims    []shim // for these two
}

// WithArgs appends arguments for redis-server, such as "--appendonly", "yes". They come last and so
// override the defaults. The log must stay on standard output at level notice or below: Start reads
// there that the server is ready.
func WithArgs(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// WithPassword sets the password of the default user.
func WithPassword(password string) Option {
	return func(c *config) { c.password = password }
}

// A Server is one redis-server with a fixed address and data directory, and at most one process at
// a time.
type Server struct {
	*daemon.Server
	tb  testing.TB
	dir string
	config
}

const program = "redis-server"

// launch starts a server. Any goroutine may call it.
func launch(tb testing.TB, dir string, c config) (*Server, error) {
	s := &Server{tb: tb, dir: dir, config: c}
	var err error
	s.Server, err = daemon.Launch(tb, s.start, (*daemon.Process).Kill)
	return s, err
}

// start runs a process and waits until it has loaded its data and answers. An answer alone does not
// suffice: it may come from another redis-server that has bound the port.
func (s *Server) start(port *daemon.Port) (*daemon.Process, error) {
	data, err := s.dataDir()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port.Number),
		"--dir", data, "--save", "", "--appendonly", "no",
	}
	if s.password != "" {
		args = append(args, "--requirepass", s.password)
	}
	if s.sentinel != "" {
		args = append([]string{s.sentinel, "--sentinel"}, args...)
	}
	env, err := s.shimEnv()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append(args, s.args...)...)
	cmd.Env = append(os.Environ(), env...)
	p, err := daemon.Start(s.dir, cmd)
	return daemon.Ready(p, err, func(log string) bool {
		if !strings.Contains(log, "Ready to accept connections") && !strings.Contains(log, "Sentinel ID is") {
			return false
		}
		_, err := call(port.Addr(), s.password, time.Second, "PING")
		return isReply(err)
	})
}

// Do sends one command over a connection of its own, as the default user, and waits
// at most 5 s for the reply: a string, int64, nil or []any of these. An error reply
// is an [Error]; the Errors inside an array are elements.
func (s *Server) Do(args ...string) (any, error) {
	return s.call(5*time.Second, args...)
}

// Fill lets the server take one client at most, and is that client until the test ends.
func (s *Server) Fill() {
	s.tb.Helper()
	if _, err := s.Do("CONFIG", "SET", "maxclients", "1"); err != nil {
		s.tb.Fatalf("redistest: Fill of %s: %v", s.Addr(), err)
	}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			s.tb.Fatalf("redistest: Fill of %s: %v", s.Addr(), err)
		}
		_ = conn.SetDeadline(deadline)
		_, _ = conn.Write(encode([]string{"PING"}))
		if _, reply, _ := newDecoder(conn).next(); reply == "PONG" {
			s.tb.Cleanup(func() { conn.Close() })
			return
		}
		conn.Close() // turned away: the connection of Do, or an earlier one, still counts
	}
	s.tb.Fatalf("redistest: Fill of %s: others were connected for 5 s", s.Addr())
}

// call is Do with a time limit.
func (s *Server) call(limit time.Duration, args ...string) (any, error) {
	return call(s.Addr(), s.password, limit, args...)
}

func call(addr, password string, limit time.Duration, args ...string) (any, error) {
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	replies := newDecoder(conn)
	if password != "" {
		if _, err := roundTrip(conn, replies, "AUTH", password); err != nil {
			return nil, fmt.Errorf("AUTH: %w", err)
		}
	}
	return roundTrip(conn, replies, args...)
}

func roundTrip(w io.Writer, replies *decoder, args ...string) (any, error) {
	if _, err := w.Write(encode(args)); err != nil {
		return nil, err
	}
	_, v, err := replies.next()
	if err != nil {
		return nil, err
	}
	if e, ok := v.(Error); ok {
		return nil, e
	}
	return v, nil
}
