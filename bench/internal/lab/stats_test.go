package lab

import (
	"testing"
	"time"
)

func TestSpreadIsTheMedianAndTheRange(t *testing.T) {
	for _, c := range []struct {
		figures             []float64
		median, least, most float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{9, 1}, 5, 1, 9},
		{[]float64{5, 100, 1}, 5, 1, 100},
		{[]float64{4, 1, 3, 2}, 2.5, 1, 4},
	} {
		if median, least, most := Spread(c.figures); median != c.median || least != c.least || most != c.most {
			t.Errorf("Spread(%v) = %v, %v, %v", c.figures, median, least, most)
		}
	}
}

func TestQuantilesAreOfTheTimesInOrder(t *testing.T) {
	times := []time.Duration{5 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}
	if p50, p99 := Quantile(times, 50), Quantile(times, 99); p50 != 2 || p99 != 2 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if most := Quantile(times, 100); most != 5 {
		t.Errorf("the longest is %v", most)
	}
}
