package matrix_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

func (w *witness) Log(...any) {}

func TestFiguresAreReportedOnOneLine(t *testing.T) {
	w := &witness{name: "TestX"}
	matrix.Figures(w, "%d grants,\n%d kills", 7, 2)
	if want := []string{"figures 7 grants, 2 kills"}; !slices.Equal(w.reported, want) {
		t.Errorf("reported %q; want %q", w.reported, want)
	}
}

func TestFiguresOfTestsThatDoNotRunAgainAreKept(t *testing.T) {
	write := func(all *matrix.Table) string {
		var text strings.Builder
		if err := all.Markdown(&text); err != nil {
			t.Fatal(err)
		}
		return text.String()
	}
	first, later := table(t), table(t)
	first.Count("p.TestA", "figures", "1 grant")
	first.Count("p.TestB", "figures", "2 grants")
	first.Count("p.TestB", "figures", "3 grants") // it ran twice
	later.Count("p.TestA", "figures", "9 grants")
	if later.Count("p.TestA", "colour", "red") {
		t.Error("a colour is a figure")
	}
	if err := later.Keep(write(first)); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(write(later), "| test | figures |\n|---|---|\n")
	if want := "| `p.TestA` | 9 grants |\n| `p.TestB` | 2 grants |\n| `p.TestB` | 3 grants |\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
