//go:build unix && !linux

package redistest

import (
	"os/exec"
	"syscall"
)

const (
	sigTerm = syscall.SIGTERM
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// dieWithParent does nothing: only Linux ties a child to its parent. After a test
// process that died without its clean-up, servers may have to be killed by hand.
func dieWithParent(*exec.Cmd) {}

// standsStill has to trust the signal: there is no portable way to look.
func standsStill(int) bool { return true }
