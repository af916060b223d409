package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sdk is OpenTelemetry in one process. Here it keeps what it gets until it is asked; a program would have exporters
// that send it to a collector in place of the recorder and the reader.
type sdk struct {
	spans   *recorder
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
}

func newSDK(service string) *sdk {
	s := &sdk{spans: &recorder{service: service}, reader: sdkmetric.NewManualReader()}
	who := resource.NewSchemaless(attribute.String("service.name", service))
	s.tracers = sdktrace.NewTracerProvider(sdktrace.WithResource(who), sdktrace.WithSpanProcessor(s.spans))
	s.meters = sdkmetric.NewMeterProvider(sdkmetric.WithResource(who), sdkmetric.WithReader(s.reader))
	return s
}

func (s *sdk) tracer() trace.Tracer {
	return s.tracers.Tracer("github.com/lockstep-go/lockstep/examples/tracing")
}

// setGlobal lets all libraries of the process use it.
func (s *sdk) setGlobal() {
	otel.SetTracerProvider(s.tracers)
	otel.SetMeterProvider(s.meters)
}

// telemetry is what was seen, as it goes from a child to the parent.
type telemetry struct {
	Spans  []span
	Points []point
}

func (t *telemetry) add(more telemetry) {
	t.Spans, t.Points = append(t.Spans, more.Spans...), append(t.Points, more.Points...)
}

// collect waits until all spans have ended: those of a loss may end a little later than the work.
func (s *sdk) collect(ctx context.Context) (telemetry, error) {
	if err := s.tracers.ForceFlush(ctx); err != nil {
		return telemetry{}, err
	}
	var data metricdata.ResourceMetrics
	if err := s.reader.Collect(ctx, &data); err != nil {
		return telemetry{}, err
	}
	seen := telemetry{Spans: s.spans.ended()}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			seen.Points = append(seen.Points, points(m)...)
		}
	}
	return seen, nil
}

// span is as much of one as is drawn. The processes of a machine share the clock that From and To are read from.
type span struct {
	Trace, ID, Parent string
	Link              string // the ID of a span, maybe of another trace
	Service, Name     string
	From, To          time.Time
	Attributes        map[string]string
	Failed            bool
}

// recorder keeps spans that have ended, and counts those that have not.
type recorder struct {
	service string
	mu      sync.Mutex
	open    int
	spans   []span
}

func (r *recorder) OnStart(context.Context, sdktrace.ReadWriteSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open++
}

func (r *recorder) OnEnd(s sdktrace.ReadOnlySpan) {
	ended := span{
		Trace: s.SpanContext().TraceID().String(), ID: s.SpanContext().SpanID().String(),
		Service: r.service, Name: s.Name(), From: s.StartTime(), To: s.EndTime(),
		Attributes: map[string]string{}, Failed: s.Status().Code == codes.Error,
	}
	if s.Parent().IsValid() {
		ended.Parent = s.Parent().SpanID().String()
	}
	for _, link := range s.Links() {
		ended.Link = link.SpanContext.SpanID().String()
	}
	for _, a := range s.Attributes() {
		ended.Attributes[string(a.Key)] = a.Value.String()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
	r.spans = append(r.spans, ended)
}

func (r *recorder) ended() []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spans
}

func (r *recorder) ForceFlush(ctx context.Context) error {
	for {
		r.mu.Lock()
		open := r.open
		r.mu.Unlock()
		if open == 0 {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d spans have not ended: %w", open, ctx.Err())
		}
	}
}

func (r *recorder) Shutdown(ctx context.Context) error { return r.ForceFlush(ctx) }
