package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const program = "redis-server"

// A process is one run of redis-server.
type process struct {
	pid     int
	handle  *os.Process
	logFile string
	done    chan struct{} // closed when the process was reaped
}

// startProcess runs redis-server with the additional environment env. Its output is in a new file
// in dir.
//
// On Linux the kernel kills the server when its parent ends, and the parent is the thread that
// forked. So the goroutine that forks keeps its thread until the server is dead.
func startProcess(dir string, env, args []string) (*process, error) {
	log, err := os.CreateTemp(dir, "redis-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	dieWithParent(cmd)

	p := &process{logFile: log.Name(), done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log tells more than the exit status
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.handle, p.pid = cmd.Process, cmd.Process.Pid
	return p, nil
}

// awaitReady waits until the log of the process says that it accepts connections, and answers
// returns true. An answer alone does not suffice: it may come from another redis-server that has
// bound the port.
func (p *process) awaitReady(answers func() bool) error {
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(20 * time.Second)
	for {
		if p.saysReady() && answers() {
			return nil
		}
		select {
		case <-poll.C:
		case <-p.done:
			return &startError{"redis-server ended at once", p.log()}
		case <-deadline:
			return &startError{"redis-server is not ready after 20 s", p.log()}
		}
	}
}

func (p *process) saysReady() bool {
	log := p.log()
	return strings.Contains(log, "Ready to accept connections") || strings.Contains(log, "Sentinel ID is")
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal returns no error: the only possible one is that the process is gone, and done says that.
func (p *process) signal(sig os.Signal) { _ = p.handle.Signal(sig) }

func (p *process) kill() {
	p.signal(os.Kill)
	<-p.done
}

func (p *process) pause() error {
	if err := p.handle.Signal(sigStop); err != nil {
		return err
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	deadline := time.After(5 * time.Second)
	for !standsStill(p.pid) {
		select {
		case <-poll.C:
		case <-p.done:
			return os.ErrProcessDone
		case <-deadline:
			return errors.New("the process still runs 5 s after SIGSTOP")
		}
	}
	return nil
}

// log returns what the process printed so far.
func (p *process) log() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text))
}

// A startError says why a server did not start.
type startError struct{ reason, log string }

func (e *startError) Error() string {
	return fmt.Sprintf("%s; its log:\n%s", e.reason, e.log)
}

// isPortTaken reports whether the server failed to bind.
func isPortTaken(err error) bool {
	e, ok := errors.AsType[*startError](err)
	return ok && strings.Contains(e.log, "Address already in use")
}

// A reservation is a TCP port for a server, which it keeps while the server is down.
type reservation struct {
	number int
	sign   net.PacketConn
}

// reservePort finds a free port below the ephemeral range of all common systems. A server could not
// restart on a port that the kernel chose (":0"), since that is an ephemeral one: while the server
// is down, any outgoing connection may get its port, and a client that dials the port may even be
// connected to itself.
//
// The UDP port of the same number stays open. It tells other test processes that the number is in
// use although nothing listens on the TCP port.
func reservePort() (*reservation, error) {
	const first, count, attempts = 20000, 12000, 200
	var last error
	for range attempts {
		number := first + rand.IntN(count)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
		sign, err := net.ListenPacket("udp", addr)
		if err != nil {
			last = err
			continue
		}
		probe, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			sign.Close()
			continue
		}
		probe.Close()
		return &reservation{number, sign}, nil
	}
	return nil, fmt.Errorf("no free port: %w", last)
}

// Close frees the number.
func (r *reservation) Close() { r.sign.Close() }
