package main

import (
	"io"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
)

func TestHeadlinesAreRangesAndNeverTheBestRun(t *testing.T) {
	var runs []map[string]*report
	for _, got := range []float64{1.9, 1.54, 2.2} {
		runs = append(runs, map[string]*report{
			"a": {headlines: []headline{{"pairs/s", got, "× the best of the others"}, {"commands", 3.04, ""}}},
			"b": {headlines: []headline{{"bytes", 100 * got, "B"}, {"nothing", math.NaN(), ""}}},
		})
	}
	runs[1]["a"].headlines[1].got = math.NaN()
	text := headlines(runs)
	for _, line := range []string{
		"| | range of 3 runs, ",
		"| pairs/s | 1.5 to 2.2 × the best of the others |\n",
		"| commands | 3.0 (none in 1 of the runs) |\n",
		"| bytes | 154 to 220 B |\n",
		"| nothing | not measured |\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

func TestHeadlinesAreNotWrittenFromFewerThanThreeRuns(t *testing.T) {
	for _, s := range []settings{
		{runs: 2, quoted: "performance.md", page: "all.md"}, {runs: 3, quoted: "performance.md", page: "all.md", only: []string{"a"}}, {runs: 3, quoted: "performance.md"},
	} {
		if err := several(s, io.Discard); err == nil || !strings.Contains(err.Error(), "3") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// The numbers below a chart stand beside each other, however wide the scale is.
func TestTheNumbersBelowAChartHaveRoom(t *testing.T) {
	for _, c := range []struct {
		least, most float64
		want        string
	}{
		{140, 420, "200"}, {3, 60, "5 10 20 50"}, {20, 3000, "20 50 100 200 500 1,000 2,000"}, {40, 40_000, "100 300 1,000 3,000 10,000 30,000"},
		{20, 130_000, "100 1,000 10,000 100,000"}, {0.05, 200_000, "1 100 10,000"}, {0.0004, 200_000_000, "0.001 1 1,000 1,000,000"},
	} {
		var labels []string
		for _, tick := range (ticks{12 * vg.Centimeter}).Ticks(c.least, c.most) {
			if tick.Label != "" {
				labels = append(labels, tick.Label)
			}
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("from %v to %v: %s, want %s", c.least, c.most, got, c.want)
		}
	}
}

func TestAChartSaysWhichWayIsBetter(t *testing.T) {
	for _, m := range []metric{{"pairs/s", 0, true}, {"p50, µs", 0, false}} {
		if says := m.label(); strings.Contains(says, "more is better") != m.most || strings.Contains(says, "less is better") == m.most {
			t.Errorf("%+v: %s", m, says)
		}
	}
}
