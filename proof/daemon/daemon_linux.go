package daemon

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const (
	sigTerm = syscall.SIGTERM
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// dieWithParent makes the kernel kill the server when the test process dies without its cleanup, as
// after a panic of the test timeout.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// StandsStill reports whether every thread of the process has stopped. After SIGSTOP they stop one
// after the other.
func StandsStill(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			return false
		}
		// "pid (name) state …", and the name may itself contain parentheses.
		state := stat[bytes.LastIndexByte(stat, ')')+1:]
		if !bytes.HasPrefix(state, []byte(" T")) {
			return false
		}
	}
	return true
}
