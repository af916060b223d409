package otellocker_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

func ofTwo(store backends.OrderedStore) locker.Locker { return semaphore.New(store, 2) }

func readers(store backends.OrderedStore) locker.Locker { return rwlock.New(store).Readers() }

func writers(store backends.OrderedStore) locker.Locker { return rwlock.New(store).Writers() }

// heldScenarios are those in which the holder has a label.
var heldScenarios = []scenario{
	{
		name:  "busy, and the holder has a label",
		setup: setup{client: []locker.ClientOption{locker.WithHolder("api-7f9c/4711")}},
		run: func(x *scene) {
			l := x.lock()
			_, err := x.client.TryLock(x.ctx, key)
			x.wantMatch(err, locker.ErrHeld)
			x.unlock(l)
		},
		spans: []string{
			acquired,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=true lock.holder="api-7f9c/4711" lock.key="invoice/42" lock.outcome="busy" lock.ttl=30.0}`,
			released,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "0s",
			"lock.acquire.duration{lock.outcome=busy}":     "0s",
			"lock.acquire.attempts":                        "2×1",
			"lock.contentions":                             "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "0s",
		},
	},
}

// ticketScenarios are those of a lock that is given away.
var ticketScenarios = []scenario{
	{
		name: "given away, resumed, and the ticket used again",
		run: func(x *scene) {
			ticket, err := x.lock().Transfer(x.ctx, time.Minute)
			x.wantMatch(err, nil)
			l, err := x.client.Resume(x.ctx, ticket)
			x.wantMatch(err, nil)
			_, err = x.client.Resume(x.ctx, ticket)
			x.wantMatch(err, locker.ErrLost)
			x.unlock(l)
		},
		spans: []string{
			acquired,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.resumed=true lock.ttl=30.0}`,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="busy" lock.resumed=true lock.ttl=30.0}`,
			released,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2×0s",
			"lock.acquire.duration{lock.outcome=busy}":     "0s",
			"lock.acquire.attempts":                        "3×1",
			"lock.renewals{lock.outcome=renewed}":          "1",
			"lock.renewal.slack":                           "29.698s",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2×0s",
		},
	},
	{
		name: "given away, and not resumed in time",
		run: func(x *scene) {
			ticket, err := x.lock().Transfer(x.ctx, time.Second)
			x.wantMatch(err, nil)
			time.Sleep(time.Minute)
			_, err = x.client.Resume(x.ctx, ticket)
			x.wantMatch(err, locker.ErrLost)
		},
		spans: []string{
			acquired,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="busy" lock.resumed=true lock.ttl=30.0}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "0s",
			"lock.acquire.duration{lock.outcome=busy}":     "0s",
			"lock.acquire.attempts":                        "2×1",
			"lock.renewals{lock.outcome=renewed}":          "1",
			"lock.renewal.slack":                           "29.698s",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "0s",
		},
	},
}

// sharedScenarios are those of strategies where several may hold a key.
var sharedScenarios = []scenario{
	{
		name:  "semaphore: the first permit, the last one, and none",
		setup: setup{shared: ofTwo},
		run: func(x *scene) {
			first, last := x.lock(), x.lock()
			_, err := x.client.TryLock(x.ctx, key)
			x.wantMatch(err, locker.ErrHeld)
			x.now(0, 2)
			time.Sleep(time.Second)
			x.unlock(first)
			x.now(0, 1)
			x.unlock(last)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.holds=1 lock.key="invoice/42" lock.outcome="acquired" lock.room=1 lock.ttl=30.0}`,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.holds=2 lock.key="invoice/42" lock.outcome="acquired" lock.room=0 lock.ttl=30.0}`,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=true lock.holds=2 lock.key="invoice/42" lock.outcome="busy" lock.ttl=30.0}`,
			`2 × ` + released,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2×0s",
			"lock.acquire.duration{lock.outcome=busy}":     "0s",
			"lock.acquire.attempts":                        "3×1",
			"lock.acquire.holds":                           "1 2",
			"lock.acquire.room":                            "1 0",
			"lock.contentions":                             "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2×1s",
		},
	},
	{
		name:  "readers: there is always room for more",
		setup: setup{shared: readers, watched: []otellocker.Option{otellocker.WithHoldSpan()}},
		run: func(x *scene) {
			x.held(time.Hour)
			x.unlock(x.lock())
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.fence=946684800000000 lock.holds=2 lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock hold 0s under caller {lock.fence=946684800000000 lock.key="invoice/42"} -> lock acquire`,
			released,
		},
		metrics: samples{"lock.acquire.holds": "2"}.with("0s"),
	},
	{
		name:  "writer: alone",
		setup: setup{shared: writers},
		run:   func(x *scene) { x.unlock(x.lock()) },
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.fence=946684800000000 lock.holds=1 lock.key="invoice/42" lock.outcome="acquired" lock.room=0 lock.ttl=30.0}`,
			released,
		},
		metrics: samples{"lock.acquire.holds": "1", "lock.acquire.room": "0"}.with("0s"),
	},
	{
		name:  "nested holds of one owner",
		setup: setup{shared: func(store backends.OrderedStore) locker.Locker { return reentrant.New(store) }},
		run: func(x *scene) {
			x.ctx = locker.ContextWithOwner(x.ctx, "job 7")
			outer, inner := x.lock(), x.lock()
			x.unlock(inner)
			x.unlock(outer)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.holds=1 lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.holds=2 lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`2 × ` + released,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2×0s",
			"lock.acquire.attempts":                        "2×1",
			"lock.acquire.holds":                           "1 2",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2×0s",
		},
	},
}

// The two sides of a read-write lock are two Clients, each with middleware of its own.
func TestTheSidesOfAReadWriteLockHaveSeriesOfTheirOwn(t *testing.T) {
	s, rw := newSDK(), rwlock.New(memory.New())
	side := func(name string, l locker.Locker) *locker.Client {
		return locker.New(l, locker.WithMiddleware(otellocker.New(s.options(otellocker.WithNames(name, "memory"))...)))
	}
	reading, writing := side("rw-readers", rw.Readers()), side("rw-writers", rw.Writers())
	ctx := context.Background()
	for range 2 {
		l, err := reading.Lock(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Unlock(ctx)
	}
	l, err := writing.Lock(ctx, "another")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock(ctx)
	held := map[string]int64{}
	for _, m := range s.collect().Metrics {
		if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "lock.held" {
			for _, p := range data.DataPoints {
				side, _ := p.Attributes.Value("lock.strategy")
				held[side.AsString()] = p.Value
			}
		}
	}
	if held["rw-readers"] != 2 || held["rw-writers"] != 1 || len(held) != 2 {
		t.Errorf("lock.held is %v; want 2 readers and a writer", held)
	}
}
