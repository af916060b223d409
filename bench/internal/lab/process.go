package lab

import (
	"os"
	"os/exec"
	"runtime"
	"time"
)

// A Process is a child that can be stopped at any moment. On Linux it ends with this process at the latest.
type Process struct {
	handle *os.Process
	ended  chan struct{}
}

// StartProcess runs cmd. Its output must not be a pipe of exec's own, which would be closed when it ends.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	dieWithParent(cmd)
	p := &Process{ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel takes the thread that forks for the parent
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

// Kill ends it with SIGKILL, also if it is frozen, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.handle.Kill() // it may have ended
	<-p.ended
}

// Freeze stops it with SIGSTOP: its connections stay open, and it does nothing until Thaw.
func (p *Process) Freeze() error { return freeze(p.handle) }

// Thaw lets it go on.
func (p *Process) Thaw() error { return thaw(p.handle) }

// CPUTime is what it has used of all CPUs so far. It costs the process nothing; it is for Linux.
func (p *Process) CPUTime() (time.Duration, error) { return cpuTime(p.handle) }
