package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/lockstep-go/lockstep/proof/redistest"
)

func TestMain(m *testing.M) {
	lab.Spin()
	os.Exit(redistest.Main(m))
}

func TestTheIntervalIsByTheSignTest(t *testing.T) {
	// From tables of the sign test: with 20 pairs, the 6th and the 15th.
	if k := rank(20); k != 6 {
		t.Errorf("rank(20) = %d; want 6", k)
	}
	if k := rank(5); k != 0 {
		t.Errorf("rank(5) = %d; want 0: five pairs are too few for 95 %%", k)
	}
	var ratios []float64
	for i := range 20 {
		ratios = append(ratios, float64(20-i)) // 1 to 20
	}
	if got, want := interval(ratios), "10.500 [6.000, 15.000]"; got != want {
		t.Errorf("interval = %s; want %s", got, want)
	}
	if got, want := interval([]float64{3, 1, 2}), "2.000 [1.000, 3.000]"; got != want {
		t.Errorf("interval of too few = %s; want all of them, %s", got, want)
	}
}

// TestAVersionCanBeComparedWithItself runs every case for a moment, the worker built from this tree
// and from its last commit.
func TestAVersionCanBeComparedWithItself(t *testing.T) {
	redistest.Require(t)
	if err := exec.Command("git", "rev-parse", "HEAD").Run(); err != nil {
		redistest.Missing(t, "this is no checkout of git, so there is no version to compare with")
	}
	t.Chdir("..")
	var out strings.Builder
	if err := compare(&out, "HEAD", allCases, 1, 20*time.Millisecond, 2); err != nil {
		t.Fatal(err)
	}
	for _, name := range allCases {
		if !strings.Contains(out.String(), "| "+name+" | allocations | ") {
			t.Errorf("no row for case %s:\n%s", name, out.String())
		}
	}
}
