// Package embedded runs a miniredis in this process: a store for quickstarts and tests that needs nothing installed. It
// is not a server to rely on: it holds everything in this process's memory, and ends with it; and a value ends sooner
// than asked by as long as the process was kept from running in the middle of a command. It tells no uptime, so
// quarantine lets it pass.
package embedded

import (
	"context"
	"fmt"
	"net"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running miniredis. Its keys expire as time goes by.
type Server struct{ mini *miniredis.Miniredis }

// Start starts a server on a free port of 127.0.0.1, for any Redis client, of this process or another.
func Start() (*Server, error) {
	s := New()
	if err := s.mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("lockstep: start embedded server: %w", err)
	}
	return s, nil
}

// New returns a server that only Dial reaches.
func New() *Server {
	s := &Server{miniredis.NewMiniRedis()}
	s.mini.ClockTTL(true)
	return s
}

// Addr is host:port of a server that was started.
func (s *Server) Addr() string { return s.mini.Addr() }

// Dial connects without a socket, whatever the address, so that a client with this as its Dialer works inside a
// testing/synctest bubble, with a server that was made there by New. What go-redis shares between bubbles has to be kept
// out of them: give it an IP address and MaintNotificationsConfig with ModeDisabled, or it asks the real network, and a
// PoolSize that is never reached, or a timer of one bubble turns up in another.
func (s *Server) Dial(context.Context, string, string) (net.Conn, error) {
	c, err := s.mini.Dial()
	if err != nil {
		return nil, err
	}
	return newPipe(c), nil
}

// Close ends the server and its connections. What it held is gone.
func (s *Server) Close() { s.mini.Close() }
