package simulation

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the garbage collector run less often: a schedule makes much garbage and keeps
// little. This saves a third of the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
