// Package lab has what all measurements share: redis-servers, CPUs that do not sleep, and medians.
package lab

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"
)

// A Server is a redis-server on a free loopback port, without persistence.
type Server struct {
	Addr string
	*Process
}

// StartServer starts a server. If pinned, it runs on another CPU than the client.
func StartServer(pinned bool) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.Command("redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	process, err := StartProcess(cmd)
	if err != nil {
		return nil, fmt.Errorf("start redis-server (make test installs it): %w", err)
	}
	if pinned {
		if err := pin(cmd.Process.Pid, serverCPU); err != nil {
			process.Kill()
			return nil, err
		}
	}
	for range 500 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return &Server{addr, process}, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	process.Kill()
	return nil, errors.New("redis-server does not answer")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
