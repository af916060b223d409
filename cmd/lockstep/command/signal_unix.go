//go:build unix

package command

import (
	"os"
	"os/signal"
	"syscall"
)

const terminate = syscall.SIGTERM

// The signals that end a wait.
var endings = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// notify is signal.Notify without the signals that are ignored, as HUP below nohup: they stay so.
func notify(c chan<- os.Signal, signals []os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// endedBy is the exit code of a wait that a signal has ended.
func endedBy(s os.Signal) int {
	n, _ := s.(syscall.Signal)
	return exitSignal + int(n)
}

// survivePipe makes a write to standard output or standard error that nobody reads an error.
// Otherwise Go ends the process by SIGPIPE, and the lock stays held. Not signal.Ignore: the command
// would inherit it.
func survivePipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
