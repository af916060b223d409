package otellocker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// tracing makes the spans. If a span is not recorded, it does nothing except start it.
type tracing struct {
	tracer   trace.Tracer
	started  []trace.SpanStartOption // options of every span
	shown    func(key string) string
	redacts  bool
	holdSpan bool
}

func newTracing(c config) *tracing {
	return &tracing{
		tracer: c.tracers.Tracer(ScopeName, trace.WithInstrumentationVersion(version)),
		started: []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(c.attributes...),
		},
		shown: c.shown, redacts: c.redacts, holdSpan: c.holdSpan,
	}
}

func (t *tracing) start(ctx context.Context, name string) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, t.started...)
}

func (t *tracing) describeAcquire(span trace.Span, r result) {
	attributes := []attribute.KeyValue{
		attribute.String("lock.outcome", string(r.outcome)),
		attribute.Int("lock.attempts", r.attempts()),
		attribute.Bool("lock.contended", r.contended()),
	}
	if r.lease.Fence != 0 {
		attributes = append(attributes, attribute.Int64("lock.fence", int64(r.lease.Fence))) //nolint:gosec // fences end at 2^53
	}
	holds, holder := r.sharing()
	if holder != "" {
		attributes = append(attributes, attribute.String("lock.holder", holder))
	}
	if holds > 0 {
		attributes = append(attributes, attribute.Int("lock.holds", holds))
		if r.err == nil && r.lease.Room >= 0 {
			attributes = append(attributes, attribute.Int("lock.room", r.lease.Room))
		}
	}
	span.SetAttributes(append(attributes, quorumAttributes(r.quorum())...)...)
	if r.failed() {
		t.fail(span, r.err)
	}
}

func (t *tracing) describeRelease(ctx context.Context, span trace.Span, lease contract.Lease, err error) {
	span.SetAttributes(t.key(lease.Key))
	if err == nil {
		return
	}
	span.SetAttributes(quorumAttributes(quorumOf(err))...)
	if reason := lossOf(err); reason != "" { // nothing to release: the span of the hold shows the loss
		// The others are the cleanup of an attempt that stored nothing, and the end of a minimum hold.
		if !lease.Granted.IsZero() && !contract.CallOf(ctx).Kept() {
			span.SetAttributes(attribute.String("lock.lost.reason", string(reason)))
		}
		return
	}
	t.fail(span, err)
}

// startHold makes the span of a hold, the parent of the spans of the work.
func (t *tracing) startHold(ctx context.Context, lease contract.Lease, acquire trace.SpanContext) (context.Context, trace.Span) {
	ctx, span := t.start(ctx, "lock hold")
	if span.IsRecording() {
		span.AddLink(trace.Link{SpanContext: acquire})
		span.SetAttributes(t.key(lease.Key))
		if lease.Fence != 0 {
			span.SetAttributes(attribute.Int64("lock.fence", int64(lease.Fence))) //nolint:gosec // fences end at 2^53
		}
	}
	return ctx, span
}

func (t *tracing) describeHold(span trace.Span, cause error) {
	if reason := lossOf(cause); reason != "" {
		span.SetAttributes(attribute.String("lock.lost.reason", string(reason)))
		span.SetAttributes(quorumAttributes(quorumOf(cause))...)
		t.fail(span, cause)
	}
}

// recordRenewal makes the span of an extension after it has failed: extensions that succeed have no
// span. It is the root of a trace of its own, since the trace of the Lock may have ended hours
// before.
func (t *tracing) recordRenewal(ctx context.Context, began time.Time, lease contract.Lease, ttl time.Duration, o outcome, err error) {
	from := acquireOf(ctx, lease.Key)
	_, span := t.tracer.Start(ctx, "lock renew", append([]trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithTimestamp(began), trace.WithLinks(trace.Link{SpanContext: from}),
	}, t.started...)...)
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(t.key(lease.Key), ttlOf(ttl), attribute.String("lock.outcome", string(o)))
	if reason := lossOf(err); reason != "" {
		span.SetAttributes(attribute.String("lock.lost.reason", string(reason)))
	}
	span.SetAttributes(quorumAttributes(quorumOf(err))...)
	t.fail(span, err)
}

// fail gives span the status Error.
func (t *tracing) fail(span trace.Span, err error) {
	kind := errorType(err)
	span.SetAttributes(attribute.String("error.type", kind))
	if t.redacts { // the text contains the key
		span.SetStatus(codes.Error, kind)
		return
	}
	span.SetStatus(codes.Error, err.Error())
}

func (t *tracing) key(key string) attribute.KeyValue {
	return attribute.String("lock.key", t.shown(key))
}

func ttlOf(ttl time.Duration) attribute.KeyValue { return attribute.Float64("lock.ttl", ttl.Seconds()) }

func quorumAttributes(q contract.Quorum) []attribute.KeyValue {
	if q.Size == 0 {
		return nil
	}
	return []attribute.KeyValue{attribute.Int("lock.quorum.size", int(q.Size)), attribute.Int("lock.quorum.acquired", int(q.Granted))}
}

type originKey struct{ lock string } // by lock: one lock may be taken under another

// origin is what an extension finds in its ctx: the span that acquired the lock, the otellocker
// that made it, and the ctx that the lock was asked for with.
type origin struct {
	by      *tracing // nil: no otellocker
	acquire trace.SpanContext
	asked   context.Context
}

func (t *tracing) withOrigin(ctx context.Context, lock string, h hold) context.Context {
	o := origin{asked: ctx}
	if before := originOf(ctx, lock); h.following {
		o.by, o.acquire = t, h.acquire
	} else if before != nil {
		o.by, o.acquire = before.by, before.acquire
	}
	return context.WithValue(ctx, originKey{lock}, &o)
}

// follows reports whether t makes the spans of extensions of a lock under ctx. It does if t has
// followed the lock from the start. It does also if no otellocker has: the lock was not sampled, or
// the caller extends it itself.
func (t *tracing) follows(ctx context.Context, lock string) bool {
	o := originOf(ctx, lock)
	return o == nil || o.by == nil || o.by == t
}

func originOf(ctx context.Context, lock string) *origin {
	o, _ := ctx.Value(originKey{lock}).(*origin)
	return o
}

// acquireOf returns the span that acquired the lock. For a caller that extends the lock itself it
// returns the span of that call.
func acquireOf(ctx context.Context, lock string) trace.SpanContext {
	if o := originOf(ctx, lock); o != nil && o.acquire.IsValid() {
		return o.acquire
	}
	return trace.SpanContextFromContext(ctx)
}
