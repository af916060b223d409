// Package full leaves out tests that `make nightly` runs and `make test` does not.
package full

import (
	"os"
	"testing"
)

// Size is whether tests run in full size, as `make nightly` runs them. Call it in a test: the go
// command does not note what a package reads while it is initialized, and a cached result would
// hide the rest.
func Size() bool { return os.Getenv("LOCKSTEP_TORTURE") == "1" }

// Only leaves out the test, unless tests run in full size. It is for tests that take too long for
// each change, and for those that repeat what another test of the same code says: the same
// sentences over another client library, or in real time beside fake time.
func Only(t testing.TB) {
	t.Helper()
	if !Size() {
		t.Skip("make nightly runs it")
	}
}
