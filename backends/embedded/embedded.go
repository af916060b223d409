// Package embedded runs a miniredis in this process and serves it on loopback: a store for quickstarts and tests that
// needs nothing installed. Any Redis client, of this process or another, can use it. It is not a server to rely on: it
// holds everything in this process's memory, and ends with it. It tells no uptime, so quarantine lets it pass.
package embedded

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Server is a running miniredis. Its keys expire as time goes by.
type Server struct{ mini *miniredis.Miniredis }

// Start starts a server on a free port of 127.0.0.1.
func Start() (*Server, error) {
	mini := miniredis.NewMiniRedis()
	mini.ClockTTL(true)
	if err := mini.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("lockstep: start embedded server: %w", err)
	}
	return &Server{mini}, nil
}

// Addr is host:port.
func (s *Server) Addr() string { return s.mini.Addr() }

// Close ends the server and its connections. What it held is gone.
func (s *Server) Close() { s.mini.Close() }
