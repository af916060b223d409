//go:build !linux

package lab

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

const serverCPU = 1

var errLinux = errors.New("on Linux only")

// PinSelf is for Linux.
func PinSelf() error { return errors.New("CPUs can be chosen on Linux only: use -pin=false") }

func pin(int, int) error { return nil }

// KeepAwake does nothing here.
func KeepAwake() (stop func()) { return func() {} }

// Spin does nothing here.
func Spin() {}

// CPUTime is for Linux.
func CPUTime() (time.Duration, error) { return 0, errLinux }

func cpuTime(*os.Process) (time.Duration, error) { return 0, errLinux }

type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

func (*alarm) wait(d time.Duration) error {
	time.Sleep(d)
	return nil
}

func (*alarm) close() {}

func freeze(*os.Process) error { return errLinux }

func thaw(*os.Process) error { return errLinux }

func dieWithParent(*exec.Cmd) {}
