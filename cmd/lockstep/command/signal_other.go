//go:build !unix

package command

import "os"

var (
	terminate = os.Interrupt
	endings   = []os.Signal{os.Interrupt} // the signals that end a wait
)

func endedBy(os.Signal) int { return exitSignal + 2 }

func survivePipe() {}
