//go:build !unix

package counting

import "os"

// The package compiles everywhere. Without signals nothing is stopped.
var sigStop, sigCont = os.Interrupt, os.Interrupt
