package main

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at is a hold from one millisecond to another, after noon.
func at(pid, from, to int) hold {
	ms := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Millisecond) }
	return hold{pid, span{ms(from), ms(to)}}
}

func TestASpanSurvivesThePipe(t *testing.T) {
	want := span{noon.Add(1), noon.Add(987654321)}
	got, err := parseSpan(want.String())
	if err != nil || !got.from.Equal(want.from) || !got.to.Equal(want.to) {
		t.Errorf("got %v %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "12", "12 x", "panic: no"} {
		if got, err := parseSpan(bad); err == nil {
			t.Errorf("parseSpan(%q) = %v, want an error", bad, got)
		}
	}
}

func TestOverlaps(t *testing.T) {
	for _, c := range []struct {
		sentence string
		holds    []hold
		want     int
	}{
		{"none of none", nil, 0},
		{"one after the other, told in any order", []hold{at(2, 5, 6), at(1, 0, 2), at(1, 2, 4)}, 0},
		{"two at once", []hold{at(1, 0, 3), at(2, 2, 4)}, 1},
		{"a long one that two others begin in, one after the other", []hold{at(1, 0, 9), at(2, 1, 2), at(3, 5, 6)}, 2},
		{"the same process twice is a fault as well", []hold{at(1, 0, 3), at(1, 1, 2)}, 1},
	} {
		if got := overlaps(c.holds); got != c.want {
			t.Errorf("%s: %d, want %d", c.sentence, got, c.want)
		}
	}
}

func TestFault(t *testing.T) {
	apart, together := []hold{at(1, 0, 1), at(2, 1, 2)}, []hold{at(1, 0, 2), at(2, 1, 2)}
	for _, c := range []struct {
		sentence string
		outcome  outcome
		fault    bool
	}{
		{"all found, one at a time", outcome{expected: 2, found: 2, holds: apart}, false},
		{"one lost", outcome{expected: 2, found: 1, holds: apart}, true},
		{"one too many", outcome{expected: 2, found: 3, holds: apart}, true},
		{"none lost, but two at once", outcome{expected: 2, found: 2, holds: together}, true},
	} {
		if err := c.outcome.fault(); (err != nil) != c.fault {
			t.Errorf("%s: %v", c.sentence, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		of   []time.Duration
		want time.Duration
	}{{nil, 0}, {[]time.Duration{7}, 7}, {[]time.Duration{9, 1, 5}, 5}, {[]time.Duration{4, 3, 2, 1}, 2}} {
		if got := median(c.of); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.of, got, c.want)
		}
	}
}

func TestRoundDown(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: time.Microsecond, time.Microsecond: time.Microsecond, 9 * time.Microsecond: 5 * time.Microsecond,
		10 * time.Microsecond: 10 * time.Microsecond, 499 * time.Microsecond: 200 * time.Microsecond,
		2500 * time.Microsecond: 2 * time.Millisecond,
	} {
		if got := roundDown(d); got != want {
			t.Errorf("roundDown(%v) = %v, want %v", d, got, want)
		}
	}
}

func TestAWindowShowsWhoHoldsAtEachInstant(t *testing.T) {
	w := window{noon, time.Millisecond}
	pids, rows, count := w.draw([]hold{at(7, 0, 2), at(3, 2, 4), at(7, 5, 7), at(3, 6, 7), at(9, 400, 500)})
	want := []string{"··██··█", "██···██", "·······"}
	if len(pids) != 3 || pids[0] != 3 || pids[1] != 7 || pids[2] != 9 {
		t.Fatalf("pids %v", pids)
	}
	for i, row := range rows {
		if full := want[i] + strings.Repeat("·", columns-7); row != full {
			t.Errorf("row of %d is\n%s, want\n%s", pids[i], row, full)
		}
	}
	if full := "1111·12" + strings.Repeat("·", columns-7); count != full {
		t.Errorf("count is\n%s, want\n%s", count, full)
	}
}

func TestTheMiddleIsWhereAllTakePart(t *testing.T) {
	var holds []hold
	for i := range 1000 { // 4 ms each; process 2 has its turns in the last third only
		pid := 1
		if i > 666 && i%2 == 0 {
			pid = 2
		}
		holds = append(holds, at(pid, i*4, i*4+4))
	}
	w := middle(holds)
	if w.column != 2*time.Millisecond {
		t.Errorf("a column is %v, want half a hold", w.column)
	}
	if first := noon.Add(668 * 4 * time.Millisecond); w.from.After(first) || first.Sub(w.from) > columns*w.column {
		t.Errorf("begins at %v, want the first window that has %v", w.from, first)
	}
	if alone := middle(holds[:600]); !alone.from.Equal(noon.Add((2400 - 128) / 2 * time.Millisecond)) {
		t.Errorf("with one process it begins at %v, want the middle", alone.from)
	}
	if few := middle(holds[:1]); few.column != 2*time.Millisecond {
		t.Errorf("one hold: %v", few)
	}
}

func TestATakeoverIsDrawnToScale(t *testing.T) {
	second := func(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Second))) }
	holder, heir := takeover{
		held: second(0), waited: second(0.1), killed: second(1.2), expired: second(2), taken: second(2),
	}.draw()
	if want := strings.Repeat("█", 31) + "X" + strings.Repeat("░", 20); holder != want {
		t.Errorf("holder is\n%s, want\n%s", holder, want)
	}
	if want := strings.Repeat(" ", 3) + strings.Repeat("·", 49) + strings.Repeat("█", 12); heir != want {
		t.Errorf("heir is\n%s, want\n%s", heir, want)
	}
}
