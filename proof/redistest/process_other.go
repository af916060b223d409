//go:build !unix

package redistest

import (
	"os"
	"os/exec"
)

// The package compiles everywhere, so that tests can import it and be skipped for
// want of a redis-server. Without signals, Stop is a kill and Pause fails.
var (
	sigTerm os.Signal = os.Kill
	sigStop os.Signal
	sigCont os.Signal
)

func dieWithParent(*exec.Cmd) {}

func standsStill(int) bool { return false }
