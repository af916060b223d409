package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"
)

// startRedis starts a redis-server on a free loopback port, without persistence.
func startRedis(pinned bool) (addr string, stop func(), err error) {
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start redis-server (make test installs it): %w", err)
	}
	if pinned {
		if err := pin(cmd.Process.Pid, serverCPU); err != nil {
			return "", nil, err
		}
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	for range 500 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return addr, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return "", nil, errors.New("redis-server does not answer")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
