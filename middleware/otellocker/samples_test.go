package otellocker_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/lockstep-go/lockstep/middleware/otellocker"
)

// samples are all recorded values by series, such as "lock.losses{lock.lost.reason=stolen}": "1". A
// histogram has every value in turn, "0s 3×20s". A counter has its sum.
type samples map[string]string

// instrument describes one instrument.
type instrument struct {
	unit   string
	bounds []float64 // of a histogram
	kind   kind
}

type kind int

const (
	counter kind = iota
	upDown
	histogram
)

var instruments = map[string]instrument{
	"lock.acquire.duration": {"s", []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, histogram},
	"lock.acquire.attempts": {"{attempt}", []float64{1, 2, 3, 5, 8, 13, 21, 34, 55}, histogram},
	"lock.acquire.holds":    {"{hold}", []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}, histogram},
	"lock.acquire.room":     {"{hold}", []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}, histogram},
	"lock.leading":          {"{election}", nil, upDown},
	"lock.terms":            {"{term}", nil, counter},
	"lock.term.duration":    {"s", []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400, 604800}, histogram},
	"lock.contentions":      {"{contention}", nil, counter},
	"lock.waiting":          {"{request}", nil, upDown},
	"lock.held":             {"{lock}", nil, upDown},
	"lock.hold.duration":    {"s", []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}, histogram},
	"lock.losses":           {"{loss}", nil, counter},
	"lock.abandoned":        {"{lock}", nil, counter},
	"lock.renewals":         {"{renewal}", nil, counter},
	"lock.renewal.slack":    {"s", []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}, histogram},
}

// wantMetrics checks that these data points were collected, with these values, and no others.
func (s *sdk) wantMetrics(t *testing.T, want samples, attributes ...attribute.KeyValue) {
	t.Helper()
	got := s.collect()
	expected := metricdata.ScopeMetrics{
		Scope:   instrumentation.Scope{Name: otellocker.ScopeName, Version: otellocker.Version},
		Metrics: want.metrics(t, attributes),
	}
	for i, m := range got.Metrics {
		if m.Description == "" {
			t.Errorf("%s has no description", m.Name)
		}
		got.Metrics[i].Description = ""
	}
	if !metricdatatest.AssertEqual(t, expected, got, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars()) {
		t.Errorf("metrics:\n\t%s\nwant:\n\t%s",
			strings.Join(points(got), "\n\t"), strings.Join(points(expected), "\n\t"))
	}
}

// metrics are the data points that samples become.
func (want samples) metrics(t *testing.T, attributes []attribute.KeyValue) (all []metricdata.Metrics) {
	t.Helper()
	byName := map[string]map[attribute.Distinct]bool{}
	data := map[string]metricdata.Aggregation{}
	for series, values := range want {
		name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		if byName[name] == nil {
			byName[name] = map[attribute.Distinct]bool{}
		}
		set := labelled(labels, attributes)
		of, known := instruments[name]
		if !known || byName[name][set.Equivalent()] {
			t.Fatalf("%q belongs to no instrument, or is there twice", series)
		}
		byName[name][set.Equivalent()] = true
		switch recorded := parse(t, values); {
		case of.kind != histogram:
			sum, _ := data[name].(metricdata.Sum[int64])
			sum.Temporality, sum.IsMonotonic = metricdata.CumulativeTemporality, of.kind == counter
			sum.DataPoints = append(sum.DataPoints, metricdata.DataPoint[int64]{Attributes: set, Value: int64(recorded[0])})
			data[name] = sum
		case of.unit == "s":
			data[name] = withPoint[float64](data[name], of, set, recorded)
		default:
			data[name] = withPoint[int64](data[name], of, set, recorded)
		}
	}
	for name, d := range data {
		all = append(all, metricdata.Metrics{Name: name, Unit: instruments[name].unit, Data: d})
	}
	return all
}

func withPoint[N int64 | float64](to metricdata.Aggregation, of instrument, set attribute.Set, values []float64) metricdata.Aggregation {
	h, _ := to.(metricdata.Histogram[N])
	p := metricdata.HistogramDataPoint[N]{
		Attributes: set, Bounds: of.bounds, BucketCounts: make([]uint64, len(of.bounds)+1), Count: uint64(len(values)),
		Min: metricdata.NewExtrema(N(slices.Min(values))), Max: metricdata.NewExtrema(N(slices.Max(values))),
	}
	for _, v := range values {
		p.Sum += N(v)
		bucket, _ := slices.BinarySearch(of.bounds, v) // a bound belongs to the bucket below
		p.BucketCounts[bucket]++
	}
	h.Temporality, h.DataPoints = metricdata.CumulativeTemporality, append(h.DataPoints, p)
	return h
}

func labelled(labels string, attributes []attribute.KeyValue) attribute.Set {
	attributes = slices.Clone(attributes)
	for label := range strings.SplitSeq(labels, ",") {
		if key, value, found := strings.Cut(label, "="); found {
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	return attribute.NewSet(attributes...)
}

func parse(t *testing.T, values string) (numbers []float64) {
	t.Helper()
	for field := range strings.FieldsSeq(values) {
		times := 1
		if n, each, repeated := strings.Cut(field, "×"); repeated {
			var err error
			if times, err = strconv.Atoi(n); err != nil {
				t.Fatal(err)
			}
			field = each
		}
		number, err := strconv.ParseFloat(field, 64)
		if err != nil {
			d, err := time.ParseDuration(field)
			if err != nil {
				t.Fatal(err)
			}
			number = d.Seconds()
		}
		numbers = append(numbers, slices.Repeat([]float64{number}, times)...)
	}
	return numbers
}

// points are the data points as text, without their times.
func points(of metricdata.ScopeMetrics) (lines []string) {
	note := func(name string, set attribute.Set, what string) {
		lines = append(lines, fmt.Sprintf("%s{%s} %s", name, set.Encoded(attribute.DefaultEncoder()), what))
	}
	for _, m := range of.Metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				note(m.Name, p.Attributes, fmt.Sprint(p.Value, exemplars(p.Exemplars)))
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				note(m.Name, p.Attributes, fmt.Sprint(p.Count, " of ", p.Sum, exemplars(p.Exemplars)))
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				note(m.Name, p.Attributes, fmt.Sprint(p.Count, " of ", p.Sum, exemplars(p.Exemplars)))
			}
		default:
			panic(fmt.Sprintf("%s is a %T", m.Name, data))
		}
	}
	slices.Sort(lines)
	return lines
}

// exemplars are the attributes of exemplars, which a view has dropped from the series.
func exemplars[N int64 | float64](of []metricdata.Exemplar[N]) (text string) {
	for _, e := range of {
		for _, a := range e.FilteredAttributes {
			text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
		}
	}
	return text
}

// count is how many values a histogram has, whatever their attributes are.
func (s *sdk) count(name string) (n uint64) {
	for _, m := range s.collect().Metrics {
		if m.Name != name {
			continue
		}
		switch data := m.Data.(type) {
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				n += p.Count
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				n += p.Count
			}
		}
	}
	return n
}
