//go:build !linux

package powercut

import (
	"errors"
	"os/exec"

	"github.com/lockstep-go/lockstep/proof/daemon"
)

// Main does nothing here.
func Main() {}

func (d *Disk) start(string, *exec.Cmd) (*daemon.Process, error) { return nil, errors.ErrUnsupported }
