// Package race leaves out tests that are many times slower under the race detector and can find
// nothing more with it.
package race

import "testing"

// LeaveOut leaves out the test under the race detector. Each run has it without the detector, which
// proof/ledger checks. Three kinds of tests call it:
//
//   - Contracts on embedded servers, where a Lua interpreter written in Go runs the scripts. The
//     same sentences run with the detector on real servers and on stores in memory, and with them
//     all code of this module.
//   - The contract of SQLite, which is C that was translated to Go, and strategies over it. They run with
//     the detector over MariaDB, by the same code, and so do the campaigns of SQLite.
//   - Searches through all states of a model, which have one goroutine.
func LeaveOut(t testing.TB) {
	t.Helper()
	if Enabled {
		t.Skip("run it without -race: make test does")
	}
}
