package lab

import (
	"slices"
	"time"
)

// Micros is a quantile of sorted times, in microseconds.
func Micros(sorted []time.Duration, percent int) float64 {
	return float64(sorted[(len(sorted)-1)*percent/100].Nanoseconds()) / 1000
}

// Quantile sorts times and returns one in milliseconds.
func Quantile(times []time.Duration, percent int) float64 {
	slices.Sort(times)
	return Micros(times, percent) / 1000
}

// Spread returns the median and the range of at least one figure.
func Spread(figures []float64) (median, least, most float64) {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]
}
