//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"testing"
	"time"
)

// TestProcess is the command that is stopped. It takes naps, and ends with an exit code that tells
// whether one of them was as long as a stop.
func TestProcess(t *testing.T) {
	if os.Getenv("STALLED_TEST") == "" {
		t.Skip("it is for TestTheProcessIsStoppedAndItsExitCodeTold")
	}
	longest := time.Duration(0)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		began := time.Now()
		time.Sleep(time.Millisecond)
		longest = max(longest, time.Since(began))
	}
	if longest >= stop {
		os.Exit(wasStopped)
	}
	os.Exit(wasNot)
}

const (
	stop       = 900 * time.Millisecond
	wasStopped = 41
	wasNot     = 42
)

func TestTheProcessIsStoppedAndItsExitCodeTold(t *testing.T) {
	t.Setenv("STALLED_TEST", "1")
	if code, err := run([]string{stop.String(), "100ms", os.Args[0], "-test.run=^TestProcess$"}); code != wasStopped || err != nil {
		t.Errorf("run = %d, %v; want %d", code, err, wasStopped)
	}
}

func TestWhatCannotBeRun(t *testing.T) {
	for _, args := range [][]string{
		nil, {"1s", "1s"}, {"soon", "1s", "true"}, {"1s", "later", "true"}, {"0s", "1s", "true"}, {"1s", "-1s", "true"}, {"1s", "1s", "/nowhere"},
	} {
		if code, err := run(args); code != notRun || err == nil {
			t.Errorf("run(%q) = %d, %v; want %d and an error", args, code, err, notRun)
		}
	}
}

// A process that is stopped for long ends at once by a signal.
func TestASignalEndsTheProcess(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	mine := make(chan os.Signal, 1) // the signal may come before the command has asked for it
	signal.Notify(mine, os.Interrupt)
	defer signal.Stop(mine)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-tick.C:
				_ = self.Signal(os.Interrupt)
			case <-over:
				tick.Stop()
				return
			}
		}
	}()
	code, err := run([]string{"10m", "10ms", sleep, "600"})
	close(over)
	if code != notRun || err == nil {
		t.Errorf("run = %d, %v; want the end by a signal", code, err)
	}
}
