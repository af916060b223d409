package daemon

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// A Server is a program with a fixed address, and at most one process at a time. It ends with the test that
// made it. Its methods may be called from any goroutine until then. They report failures with Errorf,
// which, unlike Fatal, any goroutine may call.
type Server struct {
	tb    testing.TB
	port  *Port
	start func(port *Port) (*Process, error)
	crash func(p *Process)

	mu    sync.Mutex // held while the process changes its state
	proc  *Process
	ended bool // after the test, when a late Restart must not start a process
}

// Serve is Launch, and fails the test for an error.
func Serve(tb testing.TB, start func(port *Port) (*Process, error), crash func(p *Process)) *Server {
	tb.Helper()
	s, err := Launch(tb, start, crash)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Launch starts a server on a port of its own. start returns when the server answers. If another
// process has bound the port, Launch calls start with another one. crash ends the server without
// giving it time to write anything, and returns when it is gone. Any goroutine may call Launch.
func Launch(tb testing.TB, start func(port *Port) (*Process, error), crash func(p *Process)) (*Server, error) {
	for attempt := 1; ; attempt++ {
		port, err := ReservePort()
		if err != nil {
			return nil, err
		}
		s := &Server{tb: tb, port: port, start: start, crash: crash}
		if s.proc, err = start(port); err == nil {
			tb.Cleanup(s.end)
			return s, nil
		}
		port.Close()
		if !IsPortTaken(err) || attempt == 10 {
			return nil, err
		}
	}
}

// Ready returns p when ready returns true for what it has printed, and kills it if it does not get so far.
func Ready(p *Process, err error, ready func(log string) bool) (*Process, error) {
	if err != nil {
		return nil, err
	}
	if err := p.Await(ready); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.proc.Resume()
	s.crash(s.proc)
	s.port.Close()
}

// Addr is host:port. It stays the same across restarts.
func (s *Server) Addr() string { return s.port.Addr() }

// Port is the number in Addr.
func (s *Server) Port() int { return s.port.Number }

// PID is the process id of the last process started.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.PID
}

// Alive reports whether the server has a process, paused or not.
func (s *Server) Alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.Alive()
}

// With calls do with the process.
func (s *Server) With(do func(p *Process) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := do(s.proc); err != nil {
		s.tb.Errorf("server on %s: %v", s.Addr(), err)
	}
}

// Kill ends the server like a crash: what was not written to disk is lost.
func (s *Server) Kill() {
	s.With(func(p *Process) error {
		s.crash(p)
		return nil
	})
}

// Stop ends the server as an operator would, with SIGTERM, so that it saves what it is configured
// to save.
func (s *Server) Stop() { s.With((*Process).Terminate) }

// Restart starts a server that was stopped or killed, with its address and data. It returns when the
// server answers.
func (s *Server) Restart() {
	s.With(func(p *Process) error {
		if s.ended {
			return nil
		}
		if p.Alive() {
			return errors.New("it was not stopped, and so can't be restarted")
		}
		deadline := time.Now().Add(5 * time.Second)
		for {
			p, err := s.start(s.port)
			if err == nil {
				s.proc = p
				return nil
			}
			if !IsPortTaken(err) || time.Now().After(deadline) {
				return err
			}
		}
	})
}

// Pause stops the process with SIGSTOP, and returns when all its threads have stopped. The kernel
// still accepts connections and bytes for it, and nothing is answered.
func (s *Server) Pause() { s.With((*Process).Pause) }

// Resume lets a paused process go on, with everything that arrived during the pause.
func (s *Server) Resume() {
	s.With(func(p *Process) error {
		p.Resume()
		return nil
	})
}
