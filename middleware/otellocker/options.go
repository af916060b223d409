package otellocker

import (
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option changes what [New] emits, or where it goes.
type Option func(*config)

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	attributes []attribute.KeyValue
	shown      func(key string) string
	redacts    bool
	holdSpan   bool
}

func configure(opts []Option) config {
	c := config{
		tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(),
		shown: func(key string) string { return key },
	}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	return c
}

// WithTracerProvider sets where spans go. The global provider is the default.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) {
		if p != nil {
			c.tracers = p
		}
	}
}

// WithMeterProvider sets where metrics go. The global provider is the default.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) {
		if p != nil {
			c.meters = p
		}
	}
}

// WithAttributes adds attributes to every span and every metric. Each combination of values is a
// time series, so do not put the keys of locks here.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return func(c *config) { c.attributes = append(slices.Clip(c.attributes), attributes...) }
}

// WithNames sets lock.strategy and lock.backend on every span and every metric. Use it for a Locker
// that was chosen by name (see package strategies), with these names.
func WithNames(strategy, backend string) Option {
	return WithAttributes(attribute.String("lock.strategy", strategy), attribute.String("lock.backend", backend))
}

// WithKeyAttribute sets what spans show of a key, to redact it or to group keys: "invoice/42" as
// "invoice". The texts of errors contain keys, so spans then show only the kind of an error. The
// function must be safe for concurrent use.
func WithKeyAttribute(shown func(key string) string) Option {
	return func(c *config) {
		if shown != nil {
			c.shown, c.redacts = shown, true
		}
	}
}

// WithHoldSpan makes a span "lock hold" also for Lock and TryLock. By default only
// [locker.Client.Do] has one: a caller may never unlock its Lock, and a span that does not end is
// never exported.
func WithHoldSpan() Option { return func(c *config) { c.holdSpan = true } }
