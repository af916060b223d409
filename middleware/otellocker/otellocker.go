// Package otellocker makes locks visible through OpenTelemetry: what waits, what holds, what was lost and why.
//
//	locks := locker.New(single.New(store), locker.WithMiddleware(otellocker.New()))  // one span per Lock
//
// Given to [locker.WithMiddleware] it sees each Lock as a whole, the wait included; given to [locker.Wrap] each attempt, or
// each node of a quorum. Where one of them is inside another, what is counted and what is held is told once, by the outermost that
// has somebody to tell.
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
	recording, seen := span.IsRecording(), seenOf(ctx, req.Key)
	counting, following := !seen.counted && o.enabled(ctx), recording && !seen.followed
	if recording {
		span.SetAttributes(o.key(req.Key), ttlOf(req.TTL))
	}
	if counting {
		o.begin(ctx)
	}
	err = errNoAnswer
	defer func() { // also if the Locker panics
		r := result{outcome: outcomeOf(ctx, err), lease: lease, err: err}
		if counting {
			o.countAcquire(ctx, r, time.Since(began))
		}
		if recording {
			o.describeAcquire(span, r)
		}
		span.End()
	}()
	if !counting && !following {
		return o.Locker.Acquire(ctx, req)
	}
	lease, err = o.Locker.Acquire(seen.mark(ctx, counting, following), req)
	if err == nil {
		lease = lease.OnHold(o.follow(hold{
			acquire: span.SpanContext(), counting: counting, following: following, spanned: following && (req.Scoped || o.holdSpan),
		}))
	}
	return lease, err
}

// Extend makes the span "lock renew" if the lease was not extended.
func (o *observed) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (extended locker.Lease, err error) {
	began, seen := time.Now(), seenOf(ctx, lease.Key)
	counting, following := !seen.counted && o.enabled(ctx), !seen.followed && o.follows(ctx, lease.Key)
	if !counting && !following { // further out, it is told already
		return o.Locker.Extend(ctx, lease, ttl)
	}
	if counting && lease.Abandoned {
		o.abandoned.Add(ctx, 1, o.base...)
	}
	err = errNoAnswer
	defer func() {
		outcome := renewalOf(ctx, lease.Key, err)
		if counting {
			o.countRenewal(ctx, outcome, time.Until(lease.Expires))
		}
		if following && outcome != renewed && outcome != canceled {
			o.recordRenewal(ctx, began, lease, ttl, outcome, err)
		}
	}()
	return o.Locker.Extend(seen.mark(ctx, counting, following), lease, ttl)
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
	acquire             trace.SpanContext
	counting, following bool
	spanned             bool
}

// follow tells what to do when a lock begins to be held, and at its end, which comes once, by Unlock or by loss.
func (o *observed) follow(h hold) func(context.Context, locker.Lease) (context.Context, func(time.Time, error)) {
	return func(ctx context.Context, lease locker.Lease) (context.Context, func(time.Time, error)) {
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

// seen tells an otellocker further in what one further out does: a lock is counted once, and followed once.
type seen struct {
	lock     string // a Locker may need another lock to grant this one
	counted  bool   // by metrics
	followed bool   // by spans, beyond those of each attempt
}

func seenOf(ctx context.Context, lock string) seen {
	if s, _ := ctx.Value(seenKey{}).(seen); s.lock == lock {
		return s
	}
	return seen{lock: lock}
}

// mark tells it those further in.
func (s seen) mark(ctx context.Context, counting, following bool) context.Context {
	s.counted, s.followed = s.counted || counting, s.followed || following
	return context.WithValue(ctx, seenKey{}, s)
}
