package otellocker_test

import (
	"context"
	"fmt"
	"testing"

	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestTenThousandKeysAddNoSeries(t *testing.T) {
	s, store := newSDK(), memory.New()
	faults := new(backendtest.Faults)
	locks := locker.New(single.New(faults.Store(store)), locker.WithMiddleware(
		otellocker.New(s.options(otellocker.WithTracerProvider(tracenoop.NewTracerProvider()))...))) // the test needs no spans
	pool := locker.New(semaphore.New(memory.New(), 5), locker.WithMiddleware(
		otellocker.New(s.options(otellocker.WithTracerProvider(tracenoop.NewTracerProvider()))...)))
	each := func(key string) { // every event that a metric counts
		ctx := context.Background()
		l, err := locks.Lock(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locks.TryLock(ctx, key); err == nil {
			t.Fatal("locked twice")
		}
		if err := l.Extend(ctx, ttl); err != nil {
			t.Fatal(err)
		}
		faults.Once(backendtest.ExpireIf, backendtest.Fail)
		if err := l.Extend(ctx, ttl); err == nil {
			t.Fatal("extended in spite of a fault")
		}
		store.Delete(key)
		if err := l.Unlock(ctx); err == nil {
			t.Fatal("not lost")
		}
		if l, err = pool.Lock(ctx, key); err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		store.SetOther(key)
		if _, err := locks.Lock(ctx, key); err == nil {
			t.Fatal("locked a list")
		}
	}
	each("one")
	before := len(points(s.collect()))
	if before < 10 {
		t.Fatalf("%d series: the test looks at the wrong thing", before)
	}
	for i := range 10_000 {
		each(fmt.Sprint("key ", i))
	}
	if after := points(s.collect()); len(after) != before {
		t.Errorf("%d series after one key, %d after 10,000:\n%s", before, len(after), after[:min(len(after), 20)])
	}
	if n := s.level("lock.losses"); n != 10_001 {
		t.Errorf("%d losses counted", n)
	}
}
