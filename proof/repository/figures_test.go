package repository

import (
	"testing"

	"github.com/lockstep-go/lockstep/proof/stamp"
)

// TestWhichFiguresAreOlderThanTheCode tells (with -v) which pages have figures that were made before a
// change of what they measure. That is no failure: it takes hours to make them again. A release
// refuses them (proof/release). A page that does not say when it was made is a failure.
func TestWhichFiguresAreOlderThanTheCode(t *testing.T) {
	for _, page := range stamp.Pages {
		lines, _, err := stamp.Report("../..", page, stamp.Measured...)
		if err != nil {
			t.Error(err)
		}
		for _, line := range lines {
			t.Log(line)
		}
	}
}
