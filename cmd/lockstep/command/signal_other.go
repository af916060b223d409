//go:build !unix

package command

import (
	"os"
	"os/signal"
)

var (
	terminate = os.Interrupt
	endings   = []os.Signal{os.Interrupt} // the signals that end a wait
)

func notify(c chan<- os.Signal, signals []os.Signal) { signal.Notify(c, signals...) }

func endedBy(os.Signal) int { return exitSignal + 2 }

func survivePipe() {}
