//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package command

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// The command is started by a starter: this program once more, in the process group of the command.
// It waits until the guard watches the group, and then becomes the command. So there is no moment
// in which the command runs without a guard. If lockstep ends before, the starter does too.

const starterName = "lockstep-start" // argv[0] of the starter

// own are the processes that this one has started and waits for. They are started under its mutex, so a
// child that is not among them is an orphan of somebody else.
var own struct {
	sync.Mutex
	pids map[int]bool
}

// launch starts a process of one's own. Call waited when somebody has waited for it.
func launch(cmd *exec.Cmd) error {
	own.Lock()
	defer own.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if own.pids == nil {
		own.pids = map[int]bool{}
	}
	own.pids[cmd.Process.Pid] = true
	return nil
}

func waited(pid int) {
	own.Lock()
	defer own.Unlock()
	delete(own.pids, pid)
}

// child is a process group with the command in it.
type child struct {
	group int // its id, and that of the command
	begin *os.File
	fault *os.File
}

// newChild starts the starter. With foreground, its group gets the terminal of standard input.
func newChild(path string, argv, env []string, foreground bool) (*child, error) {
	gate, begin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer drop(gate)
	fault, faulty, err := os.Pipe()
	if err != nil {
		_ = begin.Close()
		return nil, err
	}
	defer drop(faulty)
	// Not as ExtraFiles: those would take the place of files 3 and 4 that the caller of lockstep
	// passes on.
	for _, f := range []*os.File{gate, faulty} {
		if err := inherit(f, true); err != nil {
			return nil, err
		}
	}
	fd := func(f *os.File) string { return strconv.Itoa(int(descriptor(f))) }
	cmd := &exec.Cmd{
		Path: self(), Args: append([]string{starterName, fd(gate), fd(faulty), path}, argv...), Env: env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Foreground: foreground, Ctty: 0},
	}
	if err := launch(cmd); err != nil {
		_ = begin.Close()
		_ = fault.Close()
		return nil, err
	}
	return &child{cmd.Process.Pid, begin, fault}, nil
}

// descriptor is the number of f. Unlike Fd it leaves f as it is.
func descriptor(f *os.File) (fd uintptr) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(n uintptr) { fd = n })
	}
	return fd
}

func inherit(f *os.File, yes bool) error {
	flags := unix.FD_CLOEXEC
	if yes {
		flags = 0
	}
	_, err := unix.FcntlInt(descriptor(f), unix.F_SETFD, flags)
	return err
}

// closeFilesOnExec keeps all files from the programs that this process starts from now on.
func closeFilesOnExec() {
	files, _ := os.ReadDir("/dev/fd")
	for _, f := range files {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// start makes the starter become the command. The error is that of exec.
func (c *child) start() error {
	defer drop(c.fault)
	_, err := c.begin.Write([]byte{1})
	_ = c.begin.Close()
	if err != nil {
		return nil // it was killed: its status says so
	}
	text, err := io.ReadAll(c.fault)
	if n, bad := strconv.Atoi(string(text)); bad == nil {
		return syscall.Errno(n)
	}
	return err
}

// starterMain is the starter.
func starterMain() int {
	if len(os.Args) < 5 {
		return exitUsage
	}
	gate, badGate := strconv.Atoi(os.Args[1])
	fault, badFault := strconv.Atoi(os.Args[2])
	if badGate != nil || badFault != nil {
		return exitUsage
	}
	unix.CloseOnExec(gate)
	unix.CloseOnExec(fault)
	if n, err := unixRead(gate); n != 1 || err != nil {
		return exitUnavailable
	}
	err := syscall.Exec(os.Args[3], os.Args[4:], os.Environ())
	var number syscall.Errno
	if !errors.As(err, &number) {
		number = syscall.EINVAL
	}
	_, _ = unix.Write(fault, []byte(strconv.Itoa(int(number))))
	return exitCannotRun
}

func unixRead(fd int) (n int, err error) {
	for {
		n, err = unix.Read(fd, make([]byte, 1))
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN: // the other end shares no flags with it, but the file was made for polling
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			continue
		}
		return n, err
	}
}

// status is how the leader of the group has changed.
type status struct {
	syscall.WaitStatus
	gone bool
}

// code is the exit code of the command, or 128 and the number of the signal that ended it.
func (s status) code() int {
	if s.Signaled() {
		return exitSignal + int(s.Signal())
	}
	return s.ExitStatus()
}

// watch sends how the leader changes, until it has ended.
func (c *child) watch() <-chan status {
	changes := make(chan status, 1)
	go func() {
		for {
			var s status
			_, err := syscall.Wait4(c.group, &s.WaitStatus, syscall.WUNTRACED, nil)
			if err == syscall.EINTR {
				continue
			}
			s.gone = err != nil || s.Exited() || s.Signaled()
			if s.gone {
				waited(c.group)
			}
			changes <- s
			if s.gone {
				return
			}
		}
	}()
	return changes
}

// reap takes the exit codes of processes of the group whose parent this process has become. adopt does
// so too, but a moment later.
func (c *child) reap() {
	own.Lock()
	defer own.Unlock()
	for {
		if pid, err := syscall.Wait4(-c.group, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return
		}
	}
}

// isForeground tells whether this process has the terminal of standard input, and the command
// should get it. In a pipeline, the programs behind us would lose the terminal.
func isForeground() bool {
	if out, err := os.Stdout.Stat(); err != nil || out.Mode()&os.ModeNamedPipe != 0 {
		return false
	}
	return term.IsTerminal(0) && terminalGroup() == unix.Getpgrp()
}
