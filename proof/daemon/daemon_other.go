//go:build !unix

package daemon

import (
	"os"
	"os/exec"
)

// The package compiles everywhere, so that tests can import it and be skipped for
// want of a server. Without signals, Terminate is a kill and Pause fails.
var (
	sigTerm os.Signal = os.Kill
	sigStop os.Signal
	sigCont os.Signal
)

func dieWithParent(*exec.Cmd) {}

// StandsStill is never true here.
func StandsStill(int) bool { return false }
