package otellocker

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockstep-go/lockstep/locker/election"
)

// Terms returns a hook for [election.Election.OnTerm] that makes metrics of terms:
//
//	e := election.New(locks, "billing/leader").OnTerm(otellocker.Terms())
//
// A process that does not lead exports lock.leading with the value 0, also before its first term. So
// a sum over all processes shows when nobody leads. Several elections may share a hook; then their
// values are added up. To tell elections apart, give each a hook with an attribute of its own (see
// [WithAttributes]).
//
// The spans of a term are those of its lock, by the middleware of the Client: "lock acquire" is the
// campaign, and "lock hold" the term.
func Terms(opts ...Option) func(context.Context, election.Term) func(election.End) {
	c := configure(opts)
	t := &terms{metrics: &metrics{attributes: c.attributes}}
	meter := c.meters.Meter(ScopeName, metric.WithInstrumentationVersion(version))
	var err error
	t.duration, err = meter.Float64Histogram("lock.term.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the begin of a term to its end for this process."),
		metric.WithExplicitBucketBoundaries(termBounds...))
	report(err)
	leading, err := meter.Int64ObservableUpDownCounter("lock.leading", metric.WithUnit("{election}"),
		metric.WithDescription("Elections that this process leads, by its own clocks."))
	report(err)
	begun, err := meter.Int64ObservableCounter("lock.terms", metric.WithUnit("{term}"),
		metric.WithDescription("Terms that have begun in this process."))
	report(err)
	base := metric.WithAttributeSet(attribute.NewSet(c.attributes...))
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		ended := t.ended.Load() // first: more may begin until the next line
		o.ObserveInt64(leading, t.begun.Load()-ended, base)
		o.ObserveInt64(begun, t.begun.Load(), base)
		return nil
	}, leading, begun)
	report(err)
	return t.follow
}

var termBounds = []float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400, 604800}

// terms counts terms. Its numbers are read when metrics are collected, so that a candidate that has
// never led shows a zero.
type terms struct {
	*metrics     // for the attributes of a series
	duration     metric.Float64Histogram
	begun, ended atomic.Int64
}

func (t *terms) follow(ctx context.Context, _ election.Term) func(election.End) {
	began := time.Now()
	t.begun.Add(1)
	return func(end election.End) {
		t.ended.Add(1)
		lasted := max(end.At.Sub(began), 0)
		t.duration.Record(ctx, lasted.Seconds(), t.with(series{key: "lock.term.end", value: end.Reason}).record...)
	}
}
