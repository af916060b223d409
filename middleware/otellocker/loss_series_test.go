package otellocker_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// rate() of Prometheus misses the first event of a series that did not exist before it.
func TestTheSeriesOfLossesStartAtZero(t *testing.T) {
	s := newSDK()
	locks := locker.New(single.New(memory.New()), locker.WithMiddleware(otellocker.New(s.options()...)))
	if err := locks.Do(t.Context(), key, func(context.Context, *locker.Lock) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && sum.IsMonotonic {
			for _, p := range sum.DataPoints {
				found[m.Name]++
				if p.Value != 0 {
					t.Errorf("%s is %d", m.Name, p.Value)
				}
			}
		}
	}
	if found["lock.losses"] != 7 || found["lock.abandoned"] != 1 || found["lock.contentions"] != 1 {
		t.Errorf("series: %v; want lock.losses for each of 7 reasons, and one of the others", found)
	}
}
