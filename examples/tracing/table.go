package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

const acquireDuration = "lock.acquire.duration"

// point is a data point of a sum or a histogram, which has bounds.
type point struct {
	Name, Unit, Attributes string
	Value                  int64
	Count                  uint64
	Sum                    float64
	Bounds                 []float64
	Buckets                []uint64
	Exemplars              []exemplar
}

// exemplar is a value of a histogram, and the trace that it comes from.
type exemplar struct {
	Value float64
	Trace string
}

func points(m metricdata.Metrics) (points []point) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, d := range data.DataPoints {
			if data.IsMonotonic && d.Value == 0 {
				continue // it has not happened
			}
			points = append(points, point{Name: m.Name, Unit: m.Unit, Attributes: encoded(d.Attributes), Value: d.Value})
		}
	case metricdata.Histogram[int64]:
		points = histogram(m, data)
	case metricdata.Histogram[float64]:
		points = histogram(m, data)
	}
	return points
}

func histogram[N int64 | float64](m metricdata.Metrics, data metricdata.Histogram[N]) (points []point) {
	for _, d := range data.DataPoints {
		p := point{
			Name: m.Name, Unit: m.Unit, Attributes: encoded(d.Attributes),
			Count: d.Count, Sum: float64(d.Sum), Bounds: d.Bounds, Buckets: d.BucketCounts,
		}
		for _, e := range d.Exemplars {
			p.Exemplars = append(p.Exemplars, exemplar{float64(e.Value), fmt.Sprintf("%x", e.TraceID)})
		}
		points = append(points, p)
	}
	return points
}

func encoded(set attribute.Set) string { return set.Encoded(attribute.DefaultEncoder()) }

// merge adds up what several processes have counted.
func merge(points []point) (merged []point) {
	for _, p := range points {
		same := func(m point) bool { return m.Name == p.Name && m.Attributes == p.Attributes }
		i := slices.IndexFunc(merged, same)
		if i < 0 {
			p.Buckets = slices.Clone(p.Buckets)
			merged = append(merged, p)
			continue
		}
		m := &merged[i]
		m.Value, m.Count, m.Sum = m.Value+p.Value, m.Count+p.Count, m.Sum+p.Sum
		m.Exemplars = append(slices.Clip(m.Exemplars), p.Exemplars...)
		for b := range m.Buckets {
			m.Buckets[b] += p.Buckets[b]
		}
	}
	slices.SortFunc(merged, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attributes, b.Attributes))
	})
	return merged
}

// quantile is what PromQL's histogram_quantile says: the place in its bucket, as if the values there were spread evenly.
func (p point) quantile(q float64) float64 {
	rank, below := q*float64(p.Count), 0.0
	for i, bound := range p.Bounds {
		if in := float64(p.Buckets[i]); below+in >= rank && in > 0 {
			from := 0.0
			if i > 0 {
				from = p.Bounds[i-1]
			}
			return from + (bound-from)*(rank-below)/in
		}
		below += float64(p.Buckets[i])
	}
	return p.Bounds[len(p.Bounds)-1]
}

// slowest is the exemplar of the longest Lock.
func slowest(points []point) (found exemplar, ok bool) {
	for _, p := range points {
		if p.Name != acquireDuration {
			continue
		}
		for _, e := range p.Exemplars {
			if e.Value > found.Value {
				found, ok = e, true
			}
		}
	}
	return found, ok
}

// table shows what all processes have counted together.
func (s *screen) table(points []point) {
	cells := [][]string{{"metric", "attributes", "value", "count", "sum", "p50", "p99"}}
	for _, p := range merge(points) {
		row := []string{p.Name, p.Attributes}
		if p.Bounds == nil {
			row = append(row, strconv.FormatInt(p.Value, 10), "", "", "", "")
		} else {
			row = append(row, "", strconv.FormatUint(p.Count, 10), p.shown(p.Sum), p.shown(p.quantile(.5)), p.shown(p.quantile(.99)))
		}
		cells = append(cells, row)
	}
	widths := make([]int, len(cells[0]))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range cells {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < 2 {
				line.WriteString("  " + cell + space)
			} else {
				line.WriteString("  " + space + cell)
			}
		}
		s.printf("%s\n", strings.TrimRight(line.String(), " "))
	}
	s.printf("\n  p50 and p99 are read off the buckets, as a dashboard does.\n")
}

func (p point) shown(value float64) string {
	if p.Unit == "s" {
		return milliseconds(seconds(value))
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
