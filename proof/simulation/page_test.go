package simulation

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

// TestThePageShowsWhatIsExpected reads the letters of docs/matrix.md: V where a strategy must be seen to
// break its exclusion, and nowhere else.
func TestThePageShowsWhatIsExpected(t *testing.T) {
	page, err := os.ReadFile("../../docs/matrix.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "<!-- matrix: simulation, written by make matrix -->\n")
	part, _, _ = strings.Cut(part, "<!-- end of simulation -->\n")
	header := regexp.MustCompile(`(?m)^\| \| (.*) \|$`).FindStringSubmatch(part)
	if header == nil {
		t.Fatal("the page has no part of the simulation")
	}
	faults, cells := strings.Split(header[1], " | "), 0
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+) \| ([SUNV](?: \| [SUNV])*) \|$`).FindAllStringSubmatch(part, -1) {
		all := Strategies()
		i := slices.IndexFunc(all, func(s Strategy) bool { return s.Name == row[1] })
		if i < 0 {
			t.Errorf("there is no strategy %s", row[1])
			continue
		}
		for j, letter := range strings.Split(row[2], " | ") {
			cells++
			breaks := slices.Contains(Expect(all[i], Fault(faults[j])).Breaks, all[i].exclusion())
			if breaks != (matrix.Verdict(letter) == matrix.Violated) {
				t.Errorf("%s under %s: the page has %s; expected to break: %v", row[1], faults[j], letter, breaks)
			}
		}
	}
	if want := len(matrix.Parts[0].Cells()); cells != want {
		t.Errorf("%d cells, want %d", cells, want)
	}
}
