package otellocker_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// only returns the only span of that name.
func (s *sdk) only(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	those := s.named(name)
	if len(those) != 1 {
		t.Fatalf("%d spans %q", len(those), name)
	}
	return those[0]
}

func TestSpansOfTheWorkAreBelowItsHold(t *testing.T) {
	play(t, setup{}, func(x *scene) {
		err := x.client.Do(x.ctx, key, func(ctx context.Context, l *locker.Lock) error {
			_, given := x.app().Start(ctx, "work under the ctx given")
			given.End()
			_, own := x.app().Start(l.Context(), "work under the ctx of the lock")
			own.End()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}, func(x *scene) {
		hold := x.only(t, "lock hold").SpanContext
		for _, name := range []string{"work under the ctx given", "work under the ctx of the lock"} {
			if parent := x.only(t, name).Parent; !parent.Equal(hold) {
				t.Errorf("%s has parent %v; want the hold, %v", name, parent.SpanID(), hold.SpanID())
			}
		}
	})
}

func TestSpansUnderTheContextOfALockAreBelowTheCallerUnlessTheHoldHasASpan(t *testing.T) {
	for _, parent := range []string{"caller", "lock hold"} {
		s := setup{}
		if parent == "lock hold" {
			s.watched = []otellocker.Option{otellocker.WithHoldSpan()}
		}
		play(t, s, func(x *scene) {
			l := x.lock()
			_, work := x.app().Start(l.Context(), "work")
			work.End()
			x.unlock(l)
		}, func(x *scene) {
			if got := x.only(t, "work").Parent; got.SpanID() != x.only(t, parent).SpanContext.SpanID() {
				t.Errorf("the work is not under %q", parent)
			}
		})
	}
}

// A handler waits for a lock that its caller holds. Each of the two has an SDK of its own.
func TestATraceCrossesTwoProcesses(t *testing.T) {
	store := memory.New()
	here, there := newSDK(), newSDK()
	client := func(s *sdk) *locker.Client {
		return locker.New(single.New(store), locker.WithMiddleware(otellocker.New(s.options()...)))
	}
	handler := client(there)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := there.app().Start(ctx, "POST /invoice", trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		err := handler.Do(ctx, key, func(ctx context.Context, _ *locker.Lock) error {
			_, work := there.app().Start(ctx, "work")
			work.End()
			return nil
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	defer server.Close()

	ctx, span := here.app().Start(t.Context(), "request", trace.WithSpanKind(trace.SpanKindClient))
	held, err := client(here).Lock(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, http.NoBody)
		if err == nil {
			propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("status %s", resp.Status)
				}
			}
		}
		answered <- err
	}()
	for there.level("lock.waiting") != 1 { // until the handler waits, or the test times out
		time.Sleep(time.Millisecond)
	}
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	span.End()
	server.Close() // waits for the handler

	request, post, hold := here.only(t, "request"), there.only(t, "POST /invoice"), there.only(t, "lock hold")
	for _, link := range []struct{ child, parent tracetest.SpanStub }{
		{post, request}, {there.only(t, "lock acquire"), post}, {hold, post}, {there.only(t, "lock release"), post}, {there.only(t, "work"), hold},
		{here.only(t, "lock acquire"), request}, {here.only(t, "lock release"), request},
	} {
		if got, want := link.child, link.parent.SpanContext; got.Parent.SpanID() != want.SpanID() || got.SpanContext.TraceID() != want.TraceID() {
			t.Errorf("%q is not under %q", got.Name, link.parent.Name)
		}
	}
	if !post.Parent.IsRemote() {
		t.Error("the parent of the handler is not remote: the test looks at the wrong thing")
	}
	there.wantSound(t)
}

func TestExemplarsLeadToTheSpan(t *testing.T) {
	play(t, setup{}, func(x *scene) {
		x.held(2 * time.Second)
		err := x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error { return nil })
		if err != nil {
			t.Error(err)
		}
	}, func(x *scene) {
		for metric, span := range map[string]string{
			"lock.acquire.duration": "lock acquire", "lock.acquire.attempts": "lock acquire", "lock.contentions": "lock acquire",
			"lock.hold.duration": "lock hold",
		} {
			of := x.only(t, span).SpanContext
			found := x.exemplars(metric)
			if len(found) != 1 {
				t.Fatalf("%s has %d exemplars", metric, len(found))
			}
			if found[0].TraceID() != of.TraceID() || found[0].SpanID() != of.SpanID() {
				t.Errorf("the exemplar of %s is in span %v; want that of %q", metric, found[0].SpanID(), span)
			}
		}
	})
}

// exemplars are the spans that the exemplars of a metric name.
func (s *sdk) exemplars(metric string) (spans []trace.SpanContext) {
	for _, m := range s.collect().Metrics {
		if m.Name != metric {
			continue
		}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				spans = append(spans, spansOf(p.Exemplars)...)
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				spans = append(spans, spansOf(p.Exemplars)...)
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				spans = append(spans, spansOf(p.Exemplars)...)
			}
		}
	}
	return spans
}

func spansOf[N int64 | float64](exemplars []metricdata.Exemplar[N]) (spans []trace.SpanContext) {
	for _, e := range exemplars {
		spans = append(spans, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID(e.TraceID), SpanID: trace.SpanID(e.SpanID),
		}))
	}
	return spans
}
