// Command tracing shows what OpenTelemetry sees of a lock. Two Clients want the same one: a call waits
// for it, one finds it held, one gives up, and one gets it and loses it. The program prints the spans
// of each call, to scale, and the metrics.
//
//	go run -C examples/otel ./tracing
//	REDIS_ADDR=localhost:6379 go run -C examples/otel ./tracing
//
// Without REDIS_ADDR it starts a small server of its own. docs/observability.md explains the names.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends/embedded"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	logging.Disable() // of go-redis: the calls return its errors too
	if err := run(context.Background(), os.Stdout, os.Getenv("REDIS_ADDR")); err != nil {
		fmt.Fprintln(os.Stderr, "tracing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, addr string) error {
	if addr == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		addr = server.Addr()
	}
	// A program exports its spans and metrics. This one keeps them in memory, to print them.
	spans, metrics := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)))

	store, client := goredis.Open(&redis.Options{Addr: addr})
	defer client.Close()
	observe := locker.WithMiddleware(otellocker.New())
	a, b := locker.New(single.New(store), observe), locker.New(single.New(store), observe) // as if in two processes
	if err := play(ctx, a, b, client); err != nil {
		return err
	}
	if err := errors.Join(a.Drain(ctx), b.Drain(ctx)); err != nil { // the last releases
		return err
	}
	var seen metricdata.ResourceMetrics
	if err := metrics.Collect(ctx, &seen); err != nil {
		return err
	}
	printSpans(out, spans.Started())
	printMetrics(out, seen.ScopeMetrics[0].Metrics) // otellocker is the only scope
	return nil
}

// play makes five calls for one lock. Each has a span of its own, as a request to a service does.
func play(ctx context.Context, a, b *locker.Client, client *redis.Client) error {
	tracer := otel.Tracer("example")
	call := func(name string, want error, do func(ctx context.Context) error) error {
		ctx, span := tracer.Start(ctx, name)
		defer span.End()
		if err := do(ctx); !errors.Is(err, want) {
			return fmt.Errorf("%s: %v; want %v", name, err, want) //nolint:errorlint // one of them may be nil
		}
		return nil
	}
	work := func(ctx context.Context, _ *locker.Lock) error {
		_, span := tracer.Start(ctx, "work") // below the span of the hold
		defer span.End()
		time.Sleep(50 * time.Millisecond)
		return nil
	}
	key := "tracing/" + rand.Text()[:8] // a new name for each run: others may use the same server
	errs := make([]error, 5)
	var waiting sync.WaitGroup
	errs[0] = call("holds", nil, func(own context.Context) error {
		return a.Do(own, key, func(own context.Context, l *locker.Lock) error {
			waiting.Go(func() {
				errs[1] = call("waits", nil, func(ctx context.Context) error { return b.Do(ctx, key, work) })
			})
			errs[2] = call("tries", locker.ErrHeld, func(ctx context.Context) error {
				_, err := b.TryLock(ctx, key)
				return err
			})
			errs[3] = call("gives up", locker.ErrWaitLimit, func(ctx context.Context) error {
				return b.Do(ctx, key, work, locker.WithWait(40*time.Millisecond))
			})
			return work(own, l)
		})
	})
	waiting.Wait()
	errs[4] = call("loses", locker.ErrLost, func(ctx context.Context) error {
		return a.Do(ctx, key, func(ctx context.Context, _ *locker.Lock) error {
			client.Del(ctx, key) // no other program should do this
			<-ctx.Done()         // the next renewal finds out
			return nil
		}, locker.WithTTL(600*time.Millisecond))
	})
	return errors.Join(errs...)
}

// printSpans prints one trace after the other: a line for each span, below its parent, to scale.
func printSpans(out io.Writer, spans []sdktrace.ReadWriteSpan) {
	depth := map[trace.SpanID]int{}
	for _, root := range spans { // in the order of their beginnings
		for _, s := range spans {
			id, parent := s.SpanContext(), s.Parent()
			if root.Parent().IsValid() || id.TraceID() != root.SpanContext().TraceID() || s.EndTime().IsZero() {
				continue
			}
			depth[id.SpanID()] = depth[parent.SpanID()] + 1
			name := strings.Repeat("  ", depth[parent.SpanID()]) + s.Name()
			columns := func(d time.Duration) int { return int(d / (8 * time.Millisecond)) }
			before, took := s.StartTime().Sub(spans[0].StartTime()), s.EndTime().Sub(s.StartTime())
			bar := strings.Repeat(" ", columns(before)) + strings.Repeat("█", 1+columns(took))
			for _, a := range s.Attributes() {
				if a.Key == "lock.outcome" || a.Key == "lock.lost.reason" {
					bar += " " + a.Value.AsString()
				}
			}
			_, _ = fmt.Fprintf(out, "%-17s %4d ms  %s\n", name, took.Milliseconds(), bar)
		}
	}
}

// printMetrics leaves out what has not happened.
func printMetrics(out io.Writer, metrics []metricdata.Metrics) {
	labels := func(set attribute.Set) string { return set.Encoded(attribute.DefaultEncoder()) }
	for _, m := range metrics {
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				if p.Value != 0 {
					_, _ = fmt.Fprintf(out, "%-22s %-44s %d\n", m.Name, labels(p.Attributes), p.Value)
				}
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				_, _ = fmt.Fprintf(out, "%-22s %-44s %d, %.0f ms on average\n", m.Name, labels(p.Attributes), p.Count, 1000*p.Sum/float64(p.Count))
			}
		}
	}
}
