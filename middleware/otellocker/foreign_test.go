package otellocker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Lockers, middleware and providers that others have written.

// wordy reports a loss by an error of its own, which wraps ErrLost.
type wordy struct{ locker.Locker }

func (wordy) Release(context.Context, contract.Lease) error {
	return fmt.Errorf("no such session: %w", locker.ErrLost)
}

func TestALossThatIsNoLostErrorIsCountedAsStolen(t *testing.T) {
	s := newSDK()
	locks := locker.New(wordy{single.New(memory.New())}, locker.WithMiddleware(otellocker.New(s.options()...)))
	l, err := locks.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock = %v", err)
	}
	if all := strings.Join(points(s.collect()), "\n"); !strings.Contains(all, "lock.losses{lock.lost.reason=stolen}") {
		t.Errorf("no loss for the reason stolen in:\n%s", all)
	}
}

// numbered is an error; each number has an ErrorType of its own.
type numbered int

func (n numbered) Error() string     { return "failed" }
func (n numbered) ErrorType() string { return fmt.Sprint("kind ", int(n)) }

type fickle struct {
	locker.Locker
	next *numbered
}

func (f fickle) Acquire(context.Context, contract.Request) (contract.Lease, error) {
	*f.next++
	return contract.Lease{}, *f.next
}

func TestErrorTypesBeyondTheFirst200AreCountedAsOther(t *testing.T) {
	const kinds, most = 1000, 200
	s := newSDK()
	locks := locker.New(fickle{next: new(numbered)}, locker.WithMiddleware(otellocker.New(s.options()...)))
	for range kinds {
		if _, err := locks.Lock(t.Context(), key); err == nil {
			t.Fatal("granted")
		}
	}
	types, others := 0, false
	for _, p := range points(s.collect()) {
		if strings.HasPrefix(p, "lock.acquire.duration{") {
			types++
			others = others || strings.Contains(p, "error.type=other")
		}
	}
	if types != most+1 || !others {
		t.Errorf("%d error types, other among them: %v; want %d and other", types, others, most)
	}
	if n := s.count("lock.acquire.duration"); n != kinds {
		t.Errorf("%d of %d attempts are counted", n, kinds)
	}
}

// slow is middleware with a hook that takes longer than the lease lasts.
type slow struct{ locker.Locker }

func (m slow) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := m.Locker.Acquire(ctx, req)
	contract.CallOf(ctx).OnHold(func(ctx context.Context, _ contract.Lease) (context.Context, func(time.Time, error)) {
		time.Sleep(2 * ttl)
		return ctx, nil
	})
	return lease, err
}

func TestAHoldThatBeginsAfterItsLeaseHasEndedLastsZeroSeconds(t *testing.T) {
	watched := []otellocker.Option{otellocker.WithHoldSpan()}
	outermost := locker.WithMiddleware(func(next locker.Locker) locker.Locker { return slow{next} })
	play(t, setup{notOutside: true, aroundAttempts: true, watched: watched, client: []locker.ClientOption{outermost}}, func(x *scene) {
		<-x.lock().Context().Done()
	}, func(x *scene) {
		if hold := x.only(t, "lock hold"); !hold.EndTime.Equal(hold.StartTime) {
			t.Errorf("the hold lasts from %v to %v", hold.StartTime, hold.EndTime)
		}
		if all := strings.Join(points(x.collect()), "\n"); !strings.Contains(all, "lock.hold.duration{} 1 of 0") {
			t.Errorf("no hold of 0 s in:\n%s", all)
		}
	})
}

// unwilling returns an error for each histogram, as a provider may for a name that it does not accept.
type unwilling struct{ noop.MeterProvider }

type unwillingMeter struct{ noop.Meter }

var errUnwilling = errors.New("no histograms today")

func (unwilling) Meter(string, ...metric.MeterOption) metric.Meter { return unwillingMeter{} }

func (unwillingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return noop.Float64Histogram{}, errUnwilling
}

func TestAnInstrumentThatCannotBeMadeIsReported(t *testing.T) {
	var reported []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { reported = append(reported, err) }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Print(err) })) // as the default handler does
	locks := locker.New(single.New(memory.New()), locker.WithMiddleware(otellocker.New(otellocker.WithMeterProvider(unwilling{}))))
	if len(reported) != 3 || !errors.Is(reported[0], errUnwilling) {
		t.Errorf("reported %v; want an error for each of three histograms", reported)
	}
	cycle(t, locks, key) // works without the histograms
}
