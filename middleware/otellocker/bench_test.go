package otellocker_test

import (
	"context"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// BenchmarkLockUnlock is the cost of the middleware over a store in memory, beside none: "bare".
func BenchmarkLockUnlock(b *testing.B) {
	metrics := otellocker.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	spans := func(sampler sdktrace.Sampler) otellocker.Option {
		return otellocker.WithTracerProvider(sdktrace.NewTracerProvider(
			sdktrace.WithSampler(sampler), sdktrace.WithBatcher(tracetest.NewNoopExporter())))
	}
	for _, c := range []struct {
		name    string
		clients []locker.ClientOption
	}{
		{"bare", nil},
		{"no SDK", seen()},
		{"metrics", seen(metrics)},
		{"metrics, spans not sampled", seen(metrics, spans(sdktrace.NeverSample()))},
		{"metrics and spans", seen(metrics, spans(sdktrace.AlwaysSample()))},
	} {
		b.Run(c.name, func(b *testing.B) {
			locks := locker.New(single.New(memory.New()), c.clients...)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				l, err := locks.Lock(ctx, "key")
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func seen(opts ...otellocker.Option) []locker.ClientOption {
	return []locker.ClientOption{locker.WithMiddleware(otellocker.New(opts...))}
}
