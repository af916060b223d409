package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// startRedis starts a redis-server on a free loopback port, without persistence.
func startRedis() (addr string, stop func(), err error) {
	port, err := freePort()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start redis-server (make test installs it): %w", err)
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
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

const spinnerEnv = "LOCKSTEP_BENCH_SPINNER"

// keepAwake runs a process of the lowest priority on every CPU: one that falls asleep between two commands takes so
// long to wake that nothing else shows.
func keepAwake() (stop func()) {
	var spinners []*exec.Cmd
	for range runtime.NumCPU() {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), spinnerEnv+"=1", "GOMAXPROCS=1")
		if cmd.Start() == nil { // without them the figures are noisier, not wrong
			spinners = append(spinners, cmd)
		}
	}
	return func() {
		for _, cmd := range spinners {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

func spin() {
	const schedIdle = 5 // see sched(7): it gives way at once, and the CPU counts as idle
	var priority int32
	runtime.LockOSThread()
	_, _, _ = syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, schedIdle, uintptr(unsafe.Pointer(&priority)))
	for parent := os.Getppid(); os.Getppid() == parent; {
		for until := time.Now().Add(100 * time.Millisecond); time.Now().Before(until); {
		}
	}
	os.Exit(0)
}
