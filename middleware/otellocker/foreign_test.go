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
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// What Lockers, other middleware and providers do that are not ours.

// wordy loses locks, and fails, in its own words.
type wordy struct{ locker.Locker }

func (wordy) Release(context.Context, locker.Lease) error {
	return fmt.Errorf("no such session: %w", locker.ErrLost)
}

func TestALossInALockersOwnWordsIsCountedAsStolen(t *testing.T) {
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
		t.Errorf("no loss by theft in:\n%s", all)
	}
}

// numbered is an error with a kind of its own.
type numbered int

func (n numbered) Error() string     { return "failed" }
func (n numbered) ErrorType() string { return fmt.Sprint("kind ", int(n)) }

type fickle struct {
	locker.Locker
	next *numbered
}

func (f fickle) Acquire(context.Context, locker.Request) (locker.Lease, error) {
	*f.next++
	return locker.Lease{}, *f.next
}

func TestErrorsOfMoreKindsThanAMetricBearsAreOneKind(t *testing.T) {
	const kinds, most = 1000, 200
	s := newSDK()
	locks := locker.New(fickle{next: new(numbered)}, locker.WithMiddleware(otellocker.New(s.options()...)))
	for range kinds {
		if _, err := locks.Lock(t.Context(), key); err == nil {
			t.Fatal("granted")
		}
	}
	told, others := 0, false
	for _, p := range points(s.collect()) {
		if strings.HasPrefix(p, "lock.acquire.duration{") {
			told++
			others = others || strings.Contains(p, "error.type=other")
		}
	}
	if told != most+1 || !others {
		t.Errorf("%d kinds of errors, with one for the rest: %v; want %d and one for the rest", told, others, most)
	}
	if n := s.count("lock.acquire.duration"); n != kinds {
		t.Errorf("%d of %d attempts are counted", n, kinds)
	}
}

// slow is middleware whose hook outlasts the lease.
type slow struct{ locker.Locker }

func (m slow) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	lease, err := m.Locker.Acquire(ctx, req)
	return lease.OnHold(func(ctx context.Context, _ locker.Lease) (context.Context, func(time.Time, error)) {
		time.Sleep(2 * ttl)
		return ctx, nil
	}), err
}

func TestAHoldThatBeginsAfterItsEndHasLastedForNoTime(t *testing.T) {
	watched := []otellocker.Option{otellocker.WithHoldSpan()}
	outermost := locker.WithMiddleware(func(next locker.Locker) locker.Locker { return slow{next} })
	play(t, setup{notOutside: true, aroundAttempts: true, watched: watched, client: []locker.Option{outermost}}, func(x *scene) {
		<-x.lock().Context().Done()
	}, func(x *scene) {
		if hold := x.only(t, "lock hold"); !hold.EndTime.Equal(hold.StartTime) {
			t.Errorf("the hold lasts from %v to %v", hold.StartTime, hold.EndTime)
		}
		if all := strings.Join(points(x.collect()), "\n"); !strings.Contains(all, "lock.hold.duration{} 1 of 0") {
			t.Errorf("no hold that lasted for 0 s in:\n%s", all)
		}
	})
}

// unwilling makes instruments with an error, as a provider does that finds something wrong with a name.
type unwilling struct{ noop.MeterProvider }

type unwillingMeter struct{ noop.Meter }

var errUnwilling = errors.New("no histograms today")

func (unwilling) Meter(string, ...metric.MeterOption) metric.Meter { return unwillingMeter{} }

func (unwillingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return noop.Float64Histogram{}, errUnwilling
}

func TestAnInstrumentThatCannotBeMadeIsReported(t *testing.T) {
	var told []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { told = append(told, err) }))
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Print(err) })) // as it is in the beginning
	locks := locker.New(single.New(memory.New()), locker.WithMiddleware(otellocker.New(otellocker.WithMeterProvider(unwilling{}))))
	if len(told) != 3 || !errors.Is(told[0], errUnwilling) {
		t.Errorf("told %v; want an error for each of three histograms", told)
	}
	cycle(t, locks, key) // which works all the same
}
