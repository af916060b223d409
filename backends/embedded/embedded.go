// Package embedded runs a miniredis in this process. It is a store for quickstarts and tests that
// needs no installation. Do not rely on it as a server:
//
//   - It holds everything in the memory of this process, and ends with it.
//   - A value may end too soon, by the time for which the process was paused in the middle of a
//     command.
//   - It reports no uptime, so quarantine does not hold it back.
package embedded

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running miniredis. Its keys expire in real time.
type Server struct {
	mini *miniredis.Miniredis
	addr string // of Start

	mu     sync.Mutex // not held while mini closes
	closed bool
}

// Start starts a server on a free port of 127.0.0.1, for Redis clients in this process or another
// one.
func Start() (*Server, error) {
	s := New()
	if err := s.mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("lockstep: start embedded server: %w", err)
	}
	s.addr = s.mini.Addr()
	return s, nil
}

// New returns a server that only Dial can reach.
func New() *Server {
	s := &Server{mini: miniredis.NewMiniRedis()}
	s.mini.ClockTTL(true)
	return s
}

// Addr returns the host:port of a server made by Start, also after Close. It is "" for one made by New.
func (s *Server) Addr() string { return s.addr }

// Dial connects without a socket, whatever the address. A client with Dial as its Dialer works in a
// testing/synctest bubble, with a server made by New in the same bubble.
//
// go-redis shares state between bubbles. To avoid that, give it an IP address and
// MaintNotificationsConfig with ModeDisabled; otherwise it asks the real network. Give it a
// PoolSize that is never reached; otherwise a timer of one bubble is used in another.
//
// After Close it returns an error that matches net.ErrClosed.
func (s *Server) Dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("lockstep: dial embedded server: %w", net.ErrClosed)
	}
	c, err := s.mini.Dial()
	if err != nil {
		return nil, err
	}
	return newPipe(c), nil
}

// Close ends the server and its connections. Its data is lost.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.mini.Close()
}
