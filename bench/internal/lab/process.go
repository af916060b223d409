package lab

import (
	"os"
	"os/exec"
	"runtime"
	"time"
)

// A Process is a child that can be stopped at any moment. On Linux it ends when this process ends.
type Process struct {
	handle *os.Process
	ended  chan struct{}
}

// StartProcess runs cmd. Do not use a pipe of package exec for its output: it is closed when the
// process ends.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	dieWithParent(cmd)
	p := &Process{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // to the kernel, the thread that forks is the parent
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.handle = cmd.Process
	return p, nil
}

// Kill ends it with SIGKILL, even if it is frozen, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.handle.Kill() // it may have ended
	<-p.ended
}

// Freeze stops it with SIGSTOP. Its connections stay open, and it does nothing until Thaw.
func (p *Process) Freeze() error { return freeze(p.handle) }

// Thaw continues it.
func (p *Process) Thaw() error { return thaw(p.handle) }

// CPUTime is its CPU time so far, on all CPUs. The call costs the process nothing. Linux only.
func (p *Process) CPUTime() (time.Duration, error) { return cpuTime(p.handle) }
