// Package race leaves out tests that cost much under the race detector and can find nothing more
// with it.
package race

import (
	"os"
	"testing"
)

// LeaveOutEmbedded leaves out a contract on an embedded server under the race detector. Scripts there
// run in a Lua interpreter written in Go, which the detector makes many times slower. The same
// sentences run with the detector on real servers and on stores in memory, and so does all code of
// this module. `make test` runs what is left out without the detector. LOCKSTEP_TORTURE=1 leaves
// nothing out.
func LeaveOutEmbedded(t testing.TB) {
	t.Helper()
	if Enabled && os.Getenv("LOCKSTEP_TORTURE") != "1" {
		t.Skip("run it without -race: make test does")
	}
}
