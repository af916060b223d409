//go:build unix

// Command stalled runs a command, and stops its process again and again for a while, as a busy machine or a
// limit of its CPU time does. It shows which tests judge the machine:
//
//	go build -o /tmp/stalled ./proof/stalled
//	go test -exec '/tmp/stalled 600ms 100ms' ./backends/goredis
//
// The process is stopped for 600 ms, then runs for 100 ms. What it starts, such as servers, goes on. A
// test that fails so and finds no second holder expects that its process is never late: let it wait for
// what it needs, or run it in [trial.WhileBusy]. Tests of leases shorter than a stop must fail.
//
// It ends with the exit code of the command, or with 2 if it can't run the command.
//
// [trial.WhileBusy]: https://pkg.go.dev/github.com/lockstep-go/lockstep/proof/trial#WhileBusy
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "stalled:", err)
	}
	os.Exit(code)
}

var errUsage = errors.New("usage: stalled STOPPED RUNNING COMMAND [ARGUMENT...], with two durations such as 600ms 100ms")

const notRun = 2

func run(args []string) (code int, err error) {
	if len(args) < 3 {
		return notRun, errUsage
	}
	stopped, err := time.ParseDuration(args[0])
	if err != nil || stopped <= 0 {
		return notRun, errUsage
	}
	running, err := time.ParseDuration(args[1])
	if err != nil || running <= 0 {
		return notRun, errUsage
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	cmd := exec.Command(args[2], args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return notRun, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for isStopped := false; ; {
		next, what := time.After(running), syscall.SIGSTOP
		if isStopped {
			next, what = time.After(stopped), syscall.SIGCONT
		}
		select {
		case err := <-ended:
			if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0 {
				return notRun, err
			}
			return cmd.ProcessState.ExitCode(), nil
		case s := <-signals: // a process that is stopped would get it at the end of the stop
			_ = cmd.Process.Signal(s)
			_ = cmd.Process.Signal(syscall.SIGCONT)
			isStopped = false
		case <-next:
			_ = cmd.Process.Signal(what) // it may have ended
			isStopped = !isStopped
		}
	}
}
