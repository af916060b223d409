package main

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func sample() *table {
	tb := newTable("sample", "raw", []metric{{"rate", 0, true}, {"p50", 1, false}},
		contender{name: "raw", kind: reference}, contender{name: "slow", kind: peer}, contender{name: "fast", kind: peer},
		contender{name: "broken", kind: peer}, contender{name: "lockstep", kind: ours})
	for i, figures := range [][]float64{{1000, 10}, {500, 30}, {800, 20}, nil, {1500, 12.5}} {
		if figures == nil {
			tb.rows[i].broke = []error{errors.New("first\nsecond"), errors.New("first\nthird")}
			continue
		}
		for _, factor := range []float64{1, 0.9, 1.1} {
			tb.rows[i].note([]float64{figures[0] * factor, figures[1] * factor})
		}
	}
	return tb
}

func TestTheBestPeerIsNeitherOursNorAReference(t *testing.T) {
	tb := sample()
	if most, least := tb.bestPeer(0), tb.bestPeer(1); most != 800 || least != 20 {
		t.Errorf("best rate %v, best p50 %v", most, least)
	}
	if slow := tb.bestPeerThrough(0, "slow", "broken"); slow != 500 {
		t.Errorf("the best of two is %v", slow)
	}
	if !math.IsNaN(tb.bestPeerThrough(0, "broken")) || !math.IsNaN(tb.median("nobody", 0)) {
		t.Error("there is a figure for who has none")
	}
}

func TestTheNoiseIsTheFarthestOfTheSameCodeFromItself(t *testing.T) {
	tb := newTable("sample", "raw", []metric{{"p50", 1, false}}, contender{name: "raw"}, again(contender{name: "raw"}))
	if noise := tb.apart("raw", 0); noise != 1 {
		t.Errorf("%v without figures", noise)
	}
	for i, figures := range [][]float64{{100, 200, 100}, {104, 200, 80}} {
		for _, f := range figures {
			tb.rows[i].note([]float64{f})
		}
	}
	if noise := tb.apart("raw", 0); noise != 1.25 {
		t.Errorf("%v", noise)
	}
}

func TestATableTellsMediansRangesRatiosAndFailures(t *testing.T) {
	text := sample().markdown()
	for _, line := range []string{
		"| contender | rate | p50 | × raw |",
		"| raw | 1,000 (900–1,100) | 10.0 (9.0–11.0) | 1.00 |",
		"| **lockstep** | 1,500 (1,350–1,650) | 12.5 (11.2–13.8) | 1.50 |",
		"| broken | failed | failed | – |",
		"- broken failed in 2 of its turns: first",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		must must
		want string
	}{
		{atMost("p50", 1.05, 1.10, 1.03, "×"), "| p50 ≤ 1.10 × | ≤ 1.03 × | 1.05 × | met |"},
		{atMost("p50", 1.02, 1.10, 1.03, "×"), "| p50 ≤ 1.10 × | ≤ 1.03 × | 1.02 × | met, and the aim |"},
		{atMost("p50", 1.11, 1.10, 1.03, "×"), "| p50 ≤ 1.10 × | ≤ 1.03 × | 1.11 × | **not met** |"},
		{atLeast("rate", 2, 2, 2, "×"), "| rate ≥ 2 × |  | 2 × | met |"},
		{atLeast("rate", 1.9, 2, 3, "×"), "| rate ≥ 2 × | ≥ 3 × | 1.90 × | **not met** |"},
		{atLeast("rate", math.NaN(), 2, 3, "×"), "| rate ≥ 2 × | ≥ 3 × | – | not measured |"},
		{atMost("heap", 12345, 2048, 2048, "B"), "| heap ≤ 2,048 B |  | 12,345 B | **not met** |"},
	} {
		if text := musts([]must{c.must}); !strings.HasSuffix(text, "\n"+c.want+"\n") {
			t.Errorf("%q, want %q", text, c.want)
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for want, got := range map[string]string{
		"0": number(0, 0), "999": number(999, 0), "1,000": number(1000, 0), "1,234,567.9": number(1234567.89, 1),
		"-12,345": number(-12345, 0), "-123.5": number(-123.46, 1), "–": number(math.Inf(1), 2),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
