package repository

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/ledger"
)

// TestEachTestHasARun compares the ledger with the tests of all modules, and with what the parts of
// each run select.
func TestEachTestHasARun(t *testing.T) {
	packages, err := ledger.Packages("../..")
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Read("../..")
	if err != nil {
		t.Fatal(err)
	}
	tests := 0
	for _, p := range packages {
		tests += len(p.Tests)
	}
	if tests < 1500 {
		t.Errorf("only %d tests; is the pattern of this test right?", tests)
	}
	for _, wrong := range l.Check(packages, ledger.Runs) {
		t.Error(wrong)
	}
}
