// Package otellocker makes locks visible through OpenTelemetry: waits, holds, and losses with their
// reasons.
//
//	locks := locker.New(single.New(store), locker.WithMiddleware(otellocker.New()))
//
// With [locker.WithMiddleware] it sees each Lock as a whole, wait included, and makes one span per
// Lock. With [contract.Wrap] it sees each attempt, or each node of a quorum. If one otellocker is
// inside another, each lock is counted and followed only once, by the outermost one that has a
// listener.
//
// OpenTelemetry has no conventions for locks, so the names of spans, metrics and attributes are
// this project's own. docs/observability.md lists them. Only spans contain the key, never metrics,
// however many locks there are. Neither contains the token, which is a secret.
//
// [Terms] is a hook for an election: who leads, for how long, and why a term ended.
//
// # Bounds of the histograms
//
//	lock.acquire.duration  0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 60
//	lock.acquire.attempts  1 2 3 5 8 13 21 34 55
//	lock.acquire.holds     1 2 5 10 20 50 100 200 500 1000
//	lock.acquire.room      0 1 2 5 10 20 50 100 200 500 1000
//	lock.hold.duration     0.001 0.005 0.01 0.05 0.1 0.5 1 5 10 30 60 300 900 3600
//	lock.renewal.slack     0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 30 60 300 900 3600
//	lock.term.duration     0.1 0.5 1 5 10 30 60 300 900 3600 14400 86400 604800
//
// # What it does not report
//
// A Lock with invalid options, or with a ctx that has ended before anything is sent, makes no span.
// A hold begins and ends when the Client of this process sees it, not when the server does.
package otellocker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// ScopeName is the instrumentation scope of everything that this package emits. Views and samplers
// select by it.
const ScopeName = "github.com/lockstep-go/lockstep/middleware/otellocker"

const version = "0.1.0" // of the scope

// New returns middleware that makes spans and metrics. Without providers it uses the global ones,
// also if they are set later. If the SDK rejects an instrument, the error goes to otel.Handle and
// the instrument is not used.
func New(opts ...Option) contract.Middleware {
	c := configure(opts)
	t, m := newTracing(c), newMetrics(c)
	return func(next locker.Locker) locker.Locker {
		return &observed{Locker: next, tracing: t, metrics: m}
	}
}

// observed is a Locker with spans and metrics. Watch has none: its wake-ups promise nothing.
type observed struct {
	locker.Locker
	*tracing
	*metrics
}

// Acquire makes the span "lock acquire". It covers all attempts if the Client's wait is inside.
func (o *observed) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	return o.acquire(ctx, req, o.Locker.Acquire, false)
}

// Transfer makes the span of an Acquire, with the attribute lock.resumed.
func (o *observed) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	return o.acquire(ctx, req, func(ctx context.Context, req contract.Request) (contract.Lease, error) {
		return o.Locker.Transfer(ctx, from, req)
	}, true)
}

// ask is one question to a Locker: Acquire, or a Transfer.
type ask func(ctx context.Context, req contract.Request) (contract.Lease, error)

func (o *observed) acquire(ctx context.Context, req contract.Request, ask ask, resumed bool) (lease contract.Lease, err error) {
	began := time.Now()
	ctx, span := o.start(ctx, "lock acquire")
	recording, seen := span.IsRecording(), seenOf(ctx, req.Key)
	counting, following := !seen.counted && o.enabled(ctx), recording && !seen.followed
	if recording {
		span.SetAttributes(o.key(req.Key), ttlOf(req.TTL))
		if resumed {
			span.SetAttributes(attribute.Bool("lock.resumed", true))
		}
	}
	if counting {
		o.begin(ctx)
	}
	err = errNoAnswer
	defer func() { // deferred in case the Locker panics
		r := result{outcome: outcomeOf(ctx, err), resumed: resumed, call: contract.CallOf(ctx), lease: lease, err: err}
		if counting {
			o.countAcquire(ctx, r, time.Since(began))
		}
		if recording {
			o.describeAcquire(span, r)
		}
		span.End()
	}()
	if !counting && !following {
		return ask(ctx, req)
	}
	lease, err = ask(seen.mark(ctx, counting, following), req)
	if err == nil {
		call := contract.CallOf(ctx)
		call.OnHold(o.follow(hold{
			acquire: span.SpanContext(), counting: counting, following: following, spanned: following && (call.Scoped() || o.holdSpan),
		}))
	}
	return lease, err
}

// Extend makes the span "lock renew" if the lease was not extended.
func (o *observed) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (extended contract.Lease, err error) {
	began, seen := time.Now(), seenOf(ctx, lease.Key)
	counting, following := !seen.counted && o.enabled(ctx), !seen.followed && o.follows(ctx, lease.Key)
	if !counting && !following { // an outer otellocker does it
		return o.Locker.Extend(ctx, lease, ttl)
	}
	if counting && contract.CallOf(ctx).Abandoned() {
		o.abandoned.Add(ctx, 1, o.base...)
	}
	err = errNoAnswer
	defer func() {
		outcome := renewalOf(ctx, lease, err)
		if counting {
			o.countRenewal(ctx, outcome, time.Until(lease.Expires))
		}
		if following && outcome != renewed && outcome != kept && outcome != canceled {
			o.recordRenewal(ctx, began, lease, ttl, outcome, err)
		}
	}()
	return o.Locker.Extend(seen.mark(ctx, counting, following), lease, ttl)
}

// Release makes the span "lock release".
func (o *observed) Release(ctx context.Context, lease contract.Lease) (err error) {
	ctx, span := o.start(ctx, "lock release")
	err = errNoAnswer
	defer func() {
		if span.IsRecording() {
			o.describeRelease(ctx, span, lease, err)
		}
		span.End()
	}()
	return o.Locker.Release(ctx, lease)
}

// hold says what to record while a lock is held.
type hold struct {
	acquire             trace.SpanContext
	counting, following bool
	spanned             bool
}

// follow returns a hook for the begin of a hold. The hook returns another one for its end, which is
// called once, by Unlock or by a loss.
func (o *observed) follow(h hold) func(context.Context, contract.Lease) (context.Context, func(time.Time, error)) {
	return func(ctx context.Context, lease contract.Lease) (context.Context, func(time.Time, error)) {
		began := time.Now()
		var span trace.Span = noop.Span{}
		if h.spanned {
			ctx, span = o.startHold(ctx, lease, h.acquire)
		}
		ctx = o.withOrigin(ctx, lease.Key, h)
		if h.counting {
			o.held.Add(ctx, 1, o.base...)
		}
		return ctx, func(at time.Time, cause error) {
			if at.Before(began) { // another hook took longer than the lease
				at = began
			}
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

type seenKey struct{}

// seen tells an inner otellocker what an outer one records, so that a lock is counted and followed
// once.
type seen struct {
	lock     string // a Locker may need another lock to grant this one
	counted  bool   // by the metrics of an outer one
	followed bool   // by the spans of an outer one, other than those of each attempt
}

func seenOf(ctx context.Context, lock string) seen {
	if s, _ := ctx.Value(seenKey{}).(seen); s.lock == lock {
		return s
	}
	return seen{lock: lock}
}

// mark returns a ctx that tells inner ones what is recorded. An option "spans only" for the inner ones
// would do too, but where it was forgotten, attempts would be counted as locks.
func (s seen) mark(ctx context.Context, counting, following bool) context.Context {
	s.counted, s.followed = s.counted || counting, s.followed || following
	return context.WithValue(ctx, seenKey{}, s)
}
