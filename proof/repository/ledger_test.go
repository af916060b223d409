package repository

import (
	"regexp"
	"slices"
	"strings"
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

// TestTheWorkflowHasAllPartsOfNightly compares the jobs of nightly.yml with the parts.
func TestTheWorkflowHasAllPartsOfNightly(t *testing.T) {
	jobs := regexp.MustCompile(`(?m)^        part: \[(.*)\]$`).FindStringSubmatch(read(t, "../../.github/workflows/nightly.yml"))
	if jobs == nil {
		t.Fatal("nightly.yml lists no parts")
	}
	var parts []string
	for _, p := range ledger.Runs[ledger.Nightly] {
		parts = append(parts, p.Name)
	}
	if got := strings.Split(jobs[1], ", "); !slices.Equal(got, parts) {
		t.Errorf("nightly.yml has the parts %q; want %q", got, parts)
	}
}
