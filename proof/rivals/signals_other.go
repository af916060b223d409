//go:build !unix

package rivals

import "os"

var sigStop, sigCont = os.Kill, os.Kill
