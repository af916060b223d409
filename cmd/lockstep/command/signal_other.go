//go:build !unix

package command

import "os"

var terminate = os.Interrupt
