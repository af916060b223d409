// Package daemon runs the programs of servers for tests: on ports of this host, until the test process
// ends, with signals that crash or freeze them.
package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// A Process is one run of a program.
type Process struct {
	PID int

	handle  *os.Process
	name    string
	logFile string
	done    chan struct{} // closed when the process was reaped
}

// Start runs cmd in dir. Its output is in a new file in dir.
//
// On Linux the kernel kills the program when its parent ends, and the parent is the thread that
// forked. So the goroutine that forks keeps its thread until the program has ended.
func Start(dir string, cmd *exec.Cmd) (*Process, error) {
	log, err := os.CreateTemp(dir, filepath.Base(cmd.Path)+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	dieWithParent(cmd)

	p := &Process{name: filepath.Base(cmd.Path), logFile: log.Name(), done: make(chan struct{})}
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
	p.handle, p.PID = cmd.Process, cmd.Process.Pid
	return p, nil
}

// Await waits until ready returns true for what the process has printed.
func (p *Process) Await(ready func(log string) bool) error {
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(readyLimit)
	for {
		if ready(p.Log()) {
			return nil
		}
		select {
		case <-poll.C:
		case <-p.done:
			return &StartError{p.name + " ended at once", p.Log()}
		case <-deadline:
			return &StartError{fmt.Sprintf("%s is not ready after %v", p.name, readyLimit), p.Log()}
		}
	}
}

const readyLimit = 2 * time.Minute // for a busy machine

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal returns no error: the only possible one is that the process is gone, and Done says that.
func (p *Process) Signal(sig os.Signal) { _ = p.handle.Signal(sig) }

// Kill ends the process with SIGKILL, like a crash, and waits until it is gone.
func (p *Process) Kill() {
	p.Signal(os.Kill)
	<-p.done
}

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Terminate asks the process to end. If it does not, Terminate kills it and returns an error.
func (p *Process) Terminate() error {
	p.Signal(sigCont)
	p.Signal(sigTerm)
	select {
	case <-p.done:
		return nil
	case <-time.After(15 * time.Second): // longer than the shutdown-timeout of Redis
		p.Kill()
		return fmt.Errorf("it ignored SIGTERM and was killed; its log:\n%s", p.Log())
	}
}

// Pause stops the process with SIGSTOP, and returns when all its threads have stopped.
func (p *Process) Pause() error {
	if err := p.handle.Signal(sigStop); err != nil {
		return err
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	deadline := time.After(5 * time.Second)
	for !StandsStill(p.PID) {
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

// Resume lets a paused process go on.
func (p *Process) Resume() { p.Signal(sigCont) }

// Log returns what the process has printed so far.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text))
}

// A StartError says why a program did not start.
type StartError struct{ reason, log string }

func (e *StartError) Error() string { return fmt.Sprintf("%s; its log:\n%s", e.reason, e.log) }

// IsPortTaken reports whether a server failed to listen because another one has its port.
func IsPortTaken(err error) bool {
	e, ok := errors.AsType[*StartError](err)
	return ok && strings.Contains(e.log, "Address already in use")
}
