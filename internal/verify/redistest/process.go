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

// startProcess runs redis-server, with env beside its environment and its output in a new file in dir.
//
// On Linux the kernel is asked to kill the server with its parent, and takes the
// thread that forked for the parent. So the goroutine that forks keeps its thread to
// itself until the server is dead, when the thread may end as it likes.
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

// awaitReady waits until the process says that it accepts connections and answers
// holds. Its own word is needed: if it lost its port to another redis-server, that
// one answers just as well.
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

// signal has no error to return: the only one possible is that the process is gone,
// and who needs to know that looks at done.
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

// A startError is a server that did not come up.
type startError struct{ reason, log string }

func (e *startError) Error() string {
	return fmt.Sprintf("%s; its log:\n%s", e.reason, e.log)
}

// isPortTaken reports whether the server failed to bind.
func isPortTaken(err error) bool {
	e, ok := errors.AsType[*startError](err)
	return ok && strings.Contains(e.log, "Address already in use")
}

// A reservation is a TCP port for a server, also while the server is down.
type reservation struct {
	number int
	sign   net.PacketConn
}

// reservePort finds a free port below the ephemeral range of all common systems.
// The kernel's choice (":0") would be an ephemeral one, and those are not free to
// return to: while the server is down, any outgoing connection may be given its
// port, and a client that dials the port may even be connected to itself.
//
// The UDP port of the same number is kept as the sign that tells other test
// processes that the number is in use although nothing listens.
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

// Close gives the number free.
func (r *reservation) Close() { r.sign.Close() }
