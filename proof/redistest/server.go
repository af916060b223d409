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
	"strconv"
	"sync"
	"testing"
	"time"
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
		starts.Go(func() { servers[i], errs[i] = launch(tb, dir, c, reservePort) })
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
// a time. Its methods may be called from any goroutine until the test ends. They report failures
// with Errorf, which, unlike Fatal, any goroutine may call.
type Server struct {
	tb   testing.TB
	dir  string
	port *reservation
	config

	mu    sync.Mutex // held while the process changes its state
	proc  *process   // the last one started
	ended bool       // after the test, when a late Restart must not start a process
}

// launch starts a server on a port from reserve. If another process has bound that port, it tries
// the next one.
func launch(tb testing.TB, dir string, c config, reserve func() (*reservation, error)) (*Server, error) {
	s := &Server{tb: tb, dir: dir, config: c}
	for attempt := 1; ; attempt++ {
		port, err := reserve()
		if err != nil {
			return nil, err
		}
		s.port = port
		if err = s.start(); err == nil {
			tb.Cleanup(s.end)
			return s, nil
		}
		port.Close()
		if !isPortTaken(err) || attempt == 10 {
			return nil, err
		}
	}
}

// start runs a process and waits until it has loaded its data and answers.
func (s *Server) start() error {
	data, err := s.dataDir()
	if err != nil {
		return err
	}
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port.number),
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
		return err
	}
	proc, err := startProcess(s.dir, env, append(args, s.args...))
	if err != nil {
		return err
	}
	err = proc.awaitReady(func() bool {
		_, err := s.call(time.Second, "PING")
		return isReply(err)
	})
	if err != nil {
		proc.kill()
		return err
	}
	s.proc = proc
	return nil
}

// end kills the process for good.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.proc.signal(sigCont)
	s.proc.kill()
	s.port.Close()
}

// Addr returns host:port. It stays the same across restarts.
func (s *Server) Addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port.number))
}

// PID returns the process id of the last process started.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid
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

// Stop ends the process as an operator would, with SIGTERM, so that it saves what it is configured
// to save. Redis looks for the signal ten times a second.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.signal(sigCont)
	s.proc.signal(sigTerm)
	select {
	case <-s.proc.done:
	case <-time.After(15 * time.Second): // longer than Redis's own shutdown-timeout
		s.proc.kill()
		s.tb.Errorf("redistest: %s ignored SIGTERM and was killed; its log:\n%s", s.Addr(), s.proc.log())
	}
}

// Kill ends the process with SIGKILL, like a crash, and waits until it is gone.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.kill()
}

// Restart starts a new process with the address and data of the one that was stopped or killed, and
// returns when it answers.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if s.proc.alive() {
		s.tb.Errorf("redistest: Restart of %s: it was not stopped", s.Addr())
		return
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := s.start()
		if err == nil {
			return
		}
		if !isPortTaken(err) || time.Now().After(deadline) {
			s.tb.Errorf("redistest: Restart of %s: %v", s.Addr(), err)
			return
		}
	}
}

// Pause stops the process with SIGSTOP, and returns when all its threads have stopped. The kernel
// still accepts connections and bytes for it, and nothing is answered.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.proc.pause(); err != nil {
		s.tb.Errorf("redistest: Pause of %s: %v", s.Addr(), err)
	}
}

// Resume lets a paused process go on, with everything that arrived during the pause.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc.signal(sigCont)
}

// call is Do with a time limit.
func (s *Server) call(limit time.Duration, args ...string) (any, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), limit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	replies := newDecoder(conn)
	if s.password != "" {
		if _, err := roundTrip(conn, replies, "AUTH", s.password); err != nil {
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
