// Package otellocker makes locks visible through OpenTelemetry: what waits, what holds, what was lost and why.
//
//	locks := locker.New(single.New(store), locker.WithMiddleware(otellocker.New()))  // one span per Lock
//
// Given to [locker.WithMiddleware] it sees each Lock as a whole, the wait included; given to [locker.Wrap] each attempt, or
// each node of a quorum. Where one of them is inside another, only the outermost counts: metrics tell of locks, and not of
// attempts.
//
// The names of spans, metrics and attributes are this project's own, since OpenTelemetry has none for locks; docs/observability.md
// lists them. A key is on spans alone, never on metrics, whatever the number of locks. A token, which is a secret, is on
// neither.
//
// # What it does not tell
//
// A Lock whose options or ctx are refused before anything is asked makes no span. The time in which a lock is held begins
// and ends as the Client of this process sees it, not the server.
package otellocker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockstep-go/lockstep/locker"
)

// ScopeName is the instrumentation scope of all that this package emits, and Version its version.
const (
	ScopeName = "github.com/lockstep-go/lockstep/middleware/otellocker"
	Version   = "0.1.0"
)

// New returns middleware that makes spans and metrics. Without providers given it uses the global ones, also if they are
// set later. An instrument that the SDK refuses is reported to otel.Handle and not used.
func New(opts ...Option) locker.Middleware {
	c := configure(opts)
	t, m := newTracing(c), newMetrics(c)
	return func(next locker.Locker) locker.Locker {
		return &observed{Locker: next, tracing: t, metrics: m}
	}
}

// observed is a Locker that is watched. Watch needs no watching: it is a hint.
type observed struct {
	locker.Locker
	*tracing
	*metrics
}

// Acquire makes the span "lock acquire", which covers all attempts if the Client's wait is inside.
func (o *observed) Acquire(ctx context.Context, req locker.Request) (lease locker.Lease, err error) {
	began := time.Now()
	ctx, span := o.start(ctx, "lock acquire")
	recording, counting := span.IsRecording(), o.enabled(ctx)
	outermost := (recording || counting) && !inside(ctx)
	counting = counting && outermost
	if recording {
		span.SetAttributes(o.key(req.Key), ttlOf(req.TTL))
	}
	if counting {
		o.waiting.Add(ctx, 1, o.base...)
	}
	err = errNoAnswer
	defer func() { // also if the Locker panics
		r := result{outcome: outcomeOf(ctx, err), lease: lease, err: err}
		if counting {
			o.waiting.Add(ctx, -1, o.base...)
			o.countAcquire(ctx, r, time.Since(began))
		}
		if recording {
			o.describeAcquire(span, r)
		}
		span.End()
	}()
	if !outermost {
		return o.Locker.Acquire(ctx, req)
	}
	lease, err = o.Locker.Acquire(markInside(ctx), req)
	if err == nil {
		lease = lease.OnHold(o.follow(hold{acquire: span.SpanContext(), counting: counting, spanned: recording && (req.Scoped || o.holdSpan)}))
	}
	return lease, err
}

// Extend makes the span "lock renew" if the lease was not extended.
func (o *observed) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (extended locker.Lease, err error) {
	began := time.Now()
	if inside(ctx) { // a node of a quorum, or the same call further in: what comes of it is told further out
		return o.Locker.Extend(ctx, lease, ttl)
	}
	err = errNoAnswer
	defer func() {
		outcome := renewalOf(ctx, lease.Key, err)
		if o.enabled(ctx) {
			o.countRenewal(ctx, outcome, time.Until(lease.Expires))
		}
		if outcome != renewed && outcome != canceled {
			o.recordRenewal(ctx, began, lease, ttl, outcome, err)
		}
	}()
	return o.Locker.Extend(markInside(ctx), lease, ttl)
}

// Release makes the span "lock release".
func (o *observed) Release(ctx context.Context, lease locker.Lease) (err error) {
	ctx, span := o.start(ctx, "lock release")
	err = errNoAnswer
	defer func() {
		if span.IsRecording() {
			o.describeRelease(span, lease, err)
		}
		span.End()
	}()
	return o.Locker.Release(ctx, lease)
}

// hold is what is seen of a lock while it is held.
type hold struct {
	acquire  trace.SpanContext
	counting bool
	spanned  bool
}

// follow tells what to do when a lock begins to be held, and at its end, which comes once, by Unlock or by loss.
func (o *observed) follow(h hold) func(context.Context, locker.Lease) (context.Context, func(time.Time, error)) {
	return func(ctx context.Context, lease locker.Lease) (context.Context, func(time.Time, error)) {
		began := time.Now()
		var span trace.Span = noop.Span{}
		if h.spanned {
			ctx, span = o.startHold(ctx, lease, h.acquire)
		}
		ctx = withOrigin(ctx, lease.Key, h.acquire)
		if h.counting {
			o.held.Add(ctx, 1, o.base...)
		}
		return ctx, func(at time.Time, cause error) {
			if h.counting {
				o.held.Add(ctx, -1, o.base...)
				o.countHold(ctx, cause, at.Sub(began))
			}
			if span.IsRecording() {
				o.describeHold(span, cause)
				span.End(trace.WithTimestamp(at))
			}
		}
	}
}

type insideKey struct{}

// markInside tells an otellocker further in that this one counts.
func markInside(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideKey{}, true)
}

func inside(ctx context.Context) bool { return ctx.Value(insideKey{}) != nil }
