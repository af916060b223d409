package otellocker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockstep-go/lockstep/locker"
)

// metrics are the instruments and their attributes.
type metrics struct {
	acquireDuration metric.Float64Histogram
	attempts        metric.Int64Histogram
	holds, room     metric.Int64Histogram
	contentions     metric.Int64Counter
	waiting, held   metric.Int64UpDownCounter
	holdDuration    metric.Float64Histogram
	losses          metric.Int64Counter
	abandoned       metric.Int64Counter
	renewals        metric.Int64Counter
	slack           metric.Float64Histogram

	once       sync.Once // makes the series that begin at zero
	attributes []attribute.KeyValue
	base       []metric.AddOption // the attributes
	baseRecord []metric.RecordOption
	sets       sync.Map     // from series to *options
	kinds      atomic.Int64 // series with a kind of error
}

// maxSeries limits the series with a kind of error: errors of others may have any number of kinds.
const maxSeries = 200

// Bounds of the histograms, in seconds, attempts or holds.
var (
	acquireBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	holdBounds    = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
	attemptBounds = []float64{1, 2, 3, 5, 8, 13, 21, 34, 55}
	holdsBounds   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
	roomBounds    = append([]float64{0}, holdsBounds...)
	slackBounds   = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
)

func newMetrics(c config) *metrics {
	set := metric.WithAttributeSet(attribute.NewSet(c.attributes...))
	m := &metrics{attributes: c.attributes, base: []metric.AddOption{set}, baseRecord: []metric.RecordOption{set}}
	meter := c.meters.Meter(ScopeName, metric.WithInstrumentationVersion(version))
	seconds := func(name, what string, bounds []float64) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		report(err)
		return h
	}
	count := func(name, unit, what string) metric.Int64Counter {
		i, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		report(err)
		return i
	}
	level := func(name, unit, what string) metric.Int64UpDownCounter {
		i, err := meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		report(err)
		return i
	}
	spread := func(name, unit, what string, bounds []float64) metric.Int64Histogram {
		h, err := meter.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		report(err)
		return h
	}
	m.attempts = spread("lock.acquire.attempts", "{attempt}", "How often the store was asked until a lock was acquired or given up.", attemptBounds)
	m.holds = spread("lock.acquire.holds", "{hold}", "Holds of a key when one was granted, that one included, where several may hold it.", holdsBounds)
	m.room = spread("lock.acquire.room", "{hold}", "How many more holds a key had room for when one was granted, where their number is limited.", roomBounds)
	m.acquireDuration = seconds("lock.acquire.duration", "Time from asking for a lock to the outcome, waiting included.", acquireBounds)
	m.contentions = count("lock.contentions", "{contention}", "Requests that found the lock held by someone else, or stood in line for it.")
	m.waiting = level("lock.waiting", "{request}", "Requests for a lock that have no outcome yet.")
	m.held = level("lock.held", "{lock}", "Locks that are held.")
	m.holdDuration = seconds("lock.hold.duration", "Time from the grant of a lock to its release or loss.", holdBounds)
	m.losses = count("lock.losses", "{loss}", "Locks that were over before they were unlocked, or were found to be when they were.")
	m.abandoned = count("lock.abandoned", "{lock}", "Locks that nobody unlocked and nothing in the process refers to any more.")
	m.renewals = count("lock.renewals", "{renewal}", "Extensions of leases.")
	m.slack = seconds("lock.renewal.slack", "Time that was left of a lease when its extension was acknowledged.", slackBounds)
	return m
}

func report(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

// enabled reports whether any instrument has a listener.
func (m *metrics) enabled(ctx context.Context) bool {
	return m.acquireDuration.Enabled(ctx) || m.attempts.Enabled(ctx) ||
		m.holds.Enabled(ctx) || m.room.Enabled(ctx) || m.contentions.Enabled(ctx) ||
		m.waiting.Enabled(ctx) || m.held.Enabled(ctx) || m.holdDuration.Enabled(ctx) ||
		m.losses.Enabled(ctx) || m.abandoned.Enabled(ctx) || m.renewals.Enabled(ctx) || m.slack.Enabled(ctx)
}

// begin counts a request. The first request makes the series of losses and contentions with the
// value 0. A series that begins with its first event would show no increase for that event.
func (m *metrics) begin(ctx context.Context) {
	m.once.Do(func() {
		ctx := context.Background() // these points belong to no trace
		m.contentions.Add(ctx, 0, m.base...)
		m.abandoned.Add(ctx, 0, m.base...)
		for _, reason := range reasons {
			m.losses.Add(ctx, 0, m.with(series{key: "lock.lost.reason", value: string(reason)}).add...)
		}
	})
	m.waiting.Add(ctx, 1, m.base...)
}

var reasons = []locker.LostReason{locker.LostExpired, locker.LostStolen, locker.LostUnavailable, locker.LostQuorum, locker.LostMaxHold, locker.LostAbandoned, locker.LostEvicted}

// countAcquire counts the outcome of a request.
func (m *metrics) countAcquire(ctx context.Context, r result, took time.Duration) {
	m.waiting.Add(ctx, -1, m.base...)
	s := series{key: "lock.outcome", value: string(r.outcome)}
	if r.failed() {
		s.errorType = errorType(r.err)
	}
	m.acquireDuration.Record(ctx, took.Seconds(), m.with(s).record...)
	m.attempts.Record(ctx, int64(r.attempts()), m.baseRecord...)
	if r.contended() {
		m.contentions.Add(ctx, 1, m.base...)
	}
	if r.lease.Holds > 0 {
		m.holds.Record(ctx, int64(r.lease.Holds), m.baseRecord...)
		if r.lease.Room >= 0 {
			m.room.Record(ctx, int64(r.lease.Room), m.baseRecord...)
		}
	}
}

func (m *metrics) countHold(ctx context.Context, cause error, lasted time.Duration) {
	m.holdDuration.Record(ctx, lasted.Seconds(), m.baseRecord...)
	if reason := lossOf(cause); reason != "" {
		m.losses.Add(ctx, 1, m.with(series{key: "lock.lost.reason", value: string(reason)}).add...)
		if reason == locker.LostAbandoned {
			m.abandoned.Add(ctx, 1, m.base...)
		}
	}
}

func (m *metrics) countRenewal(ctx context.Context, o outcome, left time.Duration) {
	m.renewals.Add(ctx, 1, m.with(series{key: "lock.outcome", value: string(o)}).add...)
	if o == renewed {
		m.slack.Record(ctx, max(left, 0).Seconds(), m.baseRecord...)
	}
}

// series are the attributes of a data point beyond those of all points.
type series struct{ key, value, errorType string }

// options carry the attributes of a series. They are built once for each series, since there are
// few.
type options struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func (m *metrics) with(s series) *options {
	if known, ok := m.sets.Load(s); ok {
		return known.(*options)
	}
	if s.errorType != "" && m.kinds.Add(1) > maxSeries {
		s.errorType = "other"
		if known, ok := m.sets.Load(s); ok {
			return known.(*options)
		}
	}
	attributes := append(slices.Clip(m.attributes), attribute.String(s.key, s.value))
	if s.errorType != "" {
		attributes = append(attributes, attribute.String("error.type", s.errorType))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	known, _ := m.sets.LoadOrStore(s, &options{record: []metric.RecordOption{set}, add: []metric.AddOption{set}})
	return known.(*options)
}
