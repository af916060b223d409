package otellocker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Two otellockers are around one lock, with providers of their own. The inner one reports what the
// outer one has no provider for.
func TestTheInnerMiddlewareReportsWhatTheOuterOneDoesNot(t *testing.T) {
	noSpans, noMetrics := otellocker.WithTracerProvider(tracenoop.NewTracerProvider()), otellocker.WithMeterProvider(metricnoop.NewMeterProvider())
	for name, c := range map[string]struct {
		outer, inner    []otellocker.Option // beside the SDK
		spans, renewals int                 // of the inner one
	}{
		"the outer one has no provider":  {[]otellocker.Option{noSpans, noMetrics}, nil, 4, 4},
		"the outer one has only metrics": {[]otellocker.Option{noSpans}, []otellocker.Option{noMetrics}, 4, 0},
		"the outer one has only spans":   {[]otellocker.Option{noMetrics}, []otellocker.Option{noSpans}, 0, 4},
		"the outer one has everything":   {nil, nil, 2, 0}, // each has its own acquire and release
		"the inner one has no provider":  {nil, []otellocker.Option{noSpans, noMetrics}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, in := newSDK(), newSDK()
				faults := new(backendtest.Faults)
				locks := locker.New(contract.Wrap(single.New(faults.Store(memory.New())), otellocker.New(in.options(c.inner...)...)),
					locker.WithTTL(ttl), locker.WithMiddleware(otellocker.New(out.options(c.outer...)...)))
				faults.Once(backendtest.ExpireIf, backendtest.Fail)
				err := locks.Do(t.Context(), key, func(context.Context, *locker.Lock) error {
					time.Sleep(time.Minute)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := len(in.spans()); n != c.spans {
					t.Errorf("%d spans of the inner one, want %d: %v", n, c.spans, in.lines())
				}
				if n := int(in.level("lock.renewals")); (n > 0) != (c.renewals > 0) {
					t.Errorf("%d renewals counted by the inner one, want %d or so", n, c.renewals)
				}
				both := slices.Concat(in.named("lock hold"), out.named("lock hold"))
				if len(both) != 1 {
					t.Errorf("%d spans of one hold", len(both))
				}
				if n := out.level("lock.renewals") + in.level("lock.renewals"); n < 4 || n > 6 {
					t.Errorf("%d renewals counted in all", n)
				}
			})
		})
	}
}

// A Locker may take another lock before it grants one, for instance to renew its credentials.
func TestALockThatALockerTakesToGrantAnotherIsReportedByItself(t *testing.T) {
	s := newSDK()
	watched := locker.WithMiddleware(otellocker.New(s.options()...))
	credentials := locker.New(single.New(memory.New()), watched)
	l := locking{single.New(memory.New()), credentials}
	if err := locker.New(l, watched).Do(t.Context(), key, func(context.Context, *locker.Lock) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if acquires, holds := len(s.named("lock acquire")), len(s.named("lock hold")); acquires != 2 || holds != 2 {
		t.Errorf("%d acquires and %d holds, want 2 of each: %v", acquires, holds, s.lines())
	}
}

type locking struct {
	locker.Locker
	credentials *locker.Client
}

func (l locking) Acquire(ctx context.Context, req contract.Request) (lease contract.Lease, err error) {
	err = l.credentials.Do(ctx, "credentials", func(ctx context.Context, _ *locker.Lock) error {
		lease, err = l.Locker.Acquire(ctx, req)
		return err
	})
	return lease, err
}

// Calls to a server that can't be reached usually hang.
func TestExtensionsThatHangUntilTheLossHaveFailed(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s, faults := newSDK(), new(backendtest.Faults)
			faults.Set(backendtest.ExpireIf, backendtest.Hang)
			locks := locker.New(single.New(faults.Store(memory.New())), locker.WithTTL(ttl), locker.WithMiddleware(otellocker.New(s.options()...)))
			l, err := locks.Lock(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			<-l.Context().Done()
			time.Sleep(everSoLong)
			spans, counted := len(s.named("lock renew")), int(s.level("lock.renewals"))
			if spans != counted || spans == 0 {
				t.Errorf("%d extensions, of which %d are spans of a failure: %v", counted, spans, s.lines())
			}
		})
	}
}
