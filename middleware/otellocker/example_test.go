package otellocker_test

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A service sets the global providers of OpenTelemetry, and needs no options. This program keeps its
// spans and metrics in memory, to print them.
func ExampleNew() {
	ctx := context.Background()
	spans, metrics := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	observe := otellocker.New(
		otellocker.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))),
		otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))),
	)
	locks := locker.New(single.New(memory.New()), locker.WithMiddleware(observe))

	_ = locks.Do(ctx, "invoice/42", func(ctx context.Context, _ *locker.Lock) error {
		_, err := locks.TryLock(ctx, "invoice/42") // another caller
		return err
	})
	for _, span := range spans.GetSpans() {
		fmt.Println("span:", span.Name)
		for _, a := range span.Attributes {
			if a.Key == "lock.key" || a.Key == "lock.outcome" {
				fmt.Println("  ", a.Key, "=", a.Value.AsString())
			}
		}
	}
	var seen metricdata.ResourceMetrics
	if err := metrics.Collect(ctx, &seen); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range seen.ScopeMetrics[0].Metrics {
		if m.Name == "lock.contentions" {
			fmt.Println("metric:", m.Name, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
		}
	}
	// Output:
	// span: lock acquire
	//    lock.key = invoice/42
	//    lock.outcome = acquired
	// span: lock acquire
	//    lock.key = invoice/42
	//    lock.outcome = busy
	// span: lock release
	//    lock.key = invoice/42
	// span: lock hold
	//    lock.key = invoice/42
	// metric: lock.contentions 1
}

// The sum of lock.leading over all processes shows when nobody leads.
func ExampleTerms() {
	ctx, shutdown := context.WithCancel(context.Background())
	metrics := sdkmetric.NewManualReader()
	provider := otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)))
	e := election.New(locker.New(fenced.New(memory.New())), "billing/leader").OnTerm(otellocker.Terms(provider))
	show := func() {
		var seen metricdata.ResourceMetrics
		if err := metrics.Collect(context.Background(), &seen); err != nil {
			fmt.Println(err)
			return
		}
		for _, m := range seen.ScopeMetrics[0].Metrics {
			if m.Name == "lock.leading" {
				fmt.Println(m.Name, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value)
			}
		}
	}

	show()
	err := e.Run(ctx, func(context.Context, election.Term) error {
		show()
		shutdown()
		return nil
	})
	fmt.Println(err)
	show()
	// Output:
	// lock.leading 0
	// lock.leading 1
	// lockstep: campaign "billing/leader": context canceled
	// lock.leading 0
}
