package otellocker_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-go/lockstep/middleware/otellocker"
)

// sdk is what a program sets up to see spans and metrics. It has no goroutines, so it works in fake time.
type sdk struct {
	exported *tracetest.InMemoryExporter
	tracers  *sdktrace.TracerProvider
	reader   *sdkmetric.ManualReader
	meters   *sdkmetric.MeterProvider
}

func newSDK() *sdk {
	exported, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	return &sdk{
		exported: exported, tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported)),
		reader: reader, meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	}
}

func (s *sdk) options(more ...otellocker.Option) []otellocker.Option {
	return append([]otellocker.Option{otellocker.WithTracerProvider(s.tracers), otellocker.WithMeterProvider(s.meters)}, more...)
}

// app makes the spans of the application.
func (s *sdk) app() trace.Tracer { return s.tracers.Tracer("app") }

// spans are those of this package, in the order in which they ended.
func (s *sdk) spans() (ours tracetest.SpanStubs) {
	for _, span := range s.exported.GetSpans() {
		if span.InstrumentationScope.Name == otellocker.ScopeName {
			ours = append(ours, span)
		}
	}
	return ours
}

// named are the spans with that name.
func (s *sdk) named(name string) (those tracetest.SpanStubs) {
	for _, span := range s.exported.GetSpans() {
		if span.Name == name {
			those = append(those, span)
		}
	}
	return those
}

// lines are the spans in words, sorted, a number before those that look the same:
//
//	lock acquire 2s under caller {lock.attempts=3 …} Error: text -> linked span
func (s *sdk) lines() []string {
	names := map[trace.SpanID]string{}
	for _, span := range s.exported.GetSpans() {
		names[span.SpanContext.SpanID()] = span.Name
	}
	count := map[string]int{}
	for _, span := range s.spans() {
		count[line(span, names)]++
	}
	var lines []string
	for text, n := range count {
		if n > 1 {
			text = fmt.Sprintf("%d × %s", n, text)
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return lines
}

func line(span tracetest.SpanStub, names map[trace.SpanID]string) string {
	name := func(c trace.SpanContext) string {
		if known := names[c.SpanID()]; known != "" {
			return known
		}
		return "unknown"
	}
	where := "root"
	if span.Parent.IsValid() {
		where = "under " + name(span.Parent)
	}
	var attributes []string
	for _, a := range span.Attributes {
		attributes = append(attributes, string(a.Key)+"="+value(a.Value))
	}
	slices.Sort(attributes)
	text := fmt.Sprintf("%s %v %s {%s}", span.Name, span.EndTime.Sub(span.StartTime), where, strings.Join(attributes, " "))
	if span.Status.Code != codes.Unset {
		text += " " + span.Status.Code.String() + ": " + span.Status.Description
	}
	for _, l := range span.Links {
		text += " -> " + name(l.SpanContext)
	}
	return text
}

// value shows the type as well: 1 is an integer, 1.0 is not, and texts are quoted.
func value(v attribute.Value) string {
	switch v.Type() {
	case attribute.STRING:
		return strconv.Quote(v.AsString())
	case attribute.FLOAT64:
		text := strconv.FormatFloat(v.AsFloat64(), 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	return v.String()
}

// wantSpans checks that there are these spans and no others, and that each is sound.
func (s *sdk) wantSpans(t *testing.T, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if got := s.lines(); !slices.Equal(got, want) {
		t.Errorf("spans:\n\t%s\nwant:\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	s.wantSound(t)
}

// wantSound checks rules for every span.
func (s *sdk) wantSound(t *testing.T) {
	t.Helper()
	all := map[trace.SpanID]tracetest.SpanStub{}
	for _, span := range s.exported.GetSpans() {
		all[span.SpanContext.SpanID()] = span
	}
	for _, span := range s.spans() {
		if span.SpanKind != trace.SpanKindInternal {
			t.Errorf("%s is of kind %v", span.Name, span.SpanKind)
		}
		if v := span.InstrumentationScope.Version; v != otellocker.Version {
			t.Errorf("%s has version %q of its scope", span.Name, v)
		}
		if span.EndTime.Before(span.StartTime) {
			t.Errorf("%s ends before it starts", span.Name)
		}
		if len(span.Events) > 0 || span.DroppedAttributes+span.DroppedLinks+span.DroppedEvents > 0 {
			t.Errorf("%s has %d events, or something dropped", span.Name, len(span.Events))
		}
		if parent, known := all[span.Parent.SpanID()]; known && parent.SpanContext.TraceID() != span.SpanContext.TraceID() {
			t.Errorf("%s is in another trace than its parent", span.Name)
		}
		seen := map[attribute.Key]bool{}
		for _, a := range span.Attributes {
			if seen[a.Key] {
				t.Errorf("%s has %s twice", span.Name, a.Key)
			}
			seen[a.Key] = true
		}
	}
}

// collect returns the metrics of this package now.
func (s *sdk) collect() metricdata.ScopeMetrics {
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(context.Background(), &all); err != nil {
		panic(err) // a reader without an exporter does not fail
	}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name == otellocker.ScopeName {
			return withoutNothing(scope)
		}
	}
	return metricdata.ScopeMetrics{}
}

// withoutNothing leaves out counters at zero, which exist from the start: see
// TestTheSeriesOfLossesStartAtZero.
func withoutNothing(scope metricdata.ScopeMetrics) metricdata.ScopeMetrics {
	var left []metricdata.Metrics
	for _, m := range scope.Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && sum.IsMonotonic {
			sum.DataPoints = slices.DeleteFunc(sum.DataPoints, func(p metricdata.DataPoint[int64]) bool { return p.Value == 0 })
			if m.Data = sum; len(sum.DataPoints) == 0 {
				continue
			}
		}
		left = append(left, m)
	}
	scope.Metrics = left
	return scope
}
