package otellocker_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
	"github.com/lockstep-go/lockstep/strategies/single"
)

func TestSpansAndMetricsForEachPlaceOfTheMiddleware(t *testing.T) { playAll(t, placementScenarios) }

const attemptRefused = `{lock.attempts=1 lock.contended=true lock.key="invoice/42" lock.outcome="busy" lock.ttl=30.0}`

// placementScenarios differ in what the middleware is around.
var placementScenarios = []scenario{
	{
		name:  "around each attempt",
		setup: setup{notOutside: true, aroundAttempts: true},
		run:   afterContention,
		spans: []string{
			`2 × lock acquire 0s under caller ` + attemptRefused,
			acquired,
			`lock hold 1s under caller {lock.key="invoice/42"} -> lock acquire`,
			released,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=busy}":     "2×0s",
			"lock.acquire.duration{lock.outcome=acquired}": "0s",
			"lock.acquire.attempts":                        "3×1",
			"lock.contentions":                             "2",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "1s",
		},
	},
	{
		name:  "around the wait and around each attempt",
		setup: setup{aroundAttempts: true},
		run:   afterContention,
		spans: []string{
			`lock acquire 2s under caller {lock.attempts=3 lock.contended=true lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`2 × lock acquire 0s under lock acquire ` + attemptRefused,
			`lock acquire 0s under lock acquire {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock hold 1s under caller {lock.key="invoice/42"} -> lock acquire`,
			released,
			`lock release 0s under lock release {lock.key="invoice/42"}`,
		},
		metrics: samples{ // of the outermost
			"lock.acquire.duration{lock.outcome=acquired}": "2s",
			"lock.acquire.attempts":                        "3",
			"lock.contentions":                             "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "1s",
		},
	},
	{
		name:  "around the wait and around each attempt, stolen after some extensions",
		setup: setup{aroundAttempts: true},
		run: func(x *scene) {
			err := x.client.Do(x.ctx, key, func(ctx context.Context, _ *locker.Lock) error {
				time.Sleep(time.Minute)
				x.store().Delete(key)
				<-ctx.Done()
				x.now(0, 0)
				return context.Cause(ctx)
			})
			x.wantMatch(err, locker.ErrLost)
		},
		spans: []string{
			acquired,
			`lock acquire 0s under lock acquire {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock renew 0s root {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen" lock.outcome="lost" lock.ttl=30.0}` +
				stolen + ` -> lock acquire`,
			`lock hold 1m7.2s under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen"}` + stolen + ` -> lock acquire`,
			releasedNothing,
			`lock release 0s under lock release {lock.key="invoice/42" lock.lost.reason="stolen"}`,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=renewed}":  "6",
			"lock.renewals{lock.outcome=lost}":     "1",
			"lock.renewal.slack":                   "6×20.098s",
			"lock.losses{lock.lost.reason=stolen}": "1",
		}.with("67.2s"),
	},
	{
		name:  "around each attempt, of which the caller has left one",
		setup: setup{notOutside: true, aroundAttempts: true},
		run: func(x *scene) {
			x.faultOnce(backendtest.SetNX, backendtest.Late(5*time.Second))
			ctx, cancel := context.WithTimeout(x.ctx, 3*time.Second)
			defer cancel()
			_, err := x.client.Lock(ctx, key)
			x.wantMatch(err, context.DeadlineExceeded)
		},
		spans: []string{
			`lock acquire 5s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			// The cleanups before and after the answer, each confirmed three times. Most find nothing; that is
			// not a failure.
			`8 × lock release 0s under caller {lock.key="invoice/42"}`,
		},
		metrics: samples{ // never held
			"lock.acquire.duration{lock.outcome=acquired}": "5s",
			"lock.acquire.attempts":                        "1",
			"lock.waiting":                                 "0",
		},
	},
	{
		name:  "around the wait and around each node of a quorum, of which one fails and one is late",
		setup: setup{nodes: 5, aroundNodes: true},
		run: func(x *scene) {
			x.faults[3].Once(backendtest.SetNX, backendtest.Fail)
			x.faults[4].Once(backendtest.SetNX, backendtest.Late(time.Second))
			err := x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error {
				x.now(0, 1)
				time.Sleep(2 * time.Second)
				return nil
			})
			if err != nil {
				x.Error(err)
			}
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired"` +
				` lock.quorum.acquired=3 lock.quorum.size=5 lock.ttl=30.0}`,
			nodeAcquired("0s", "node1"), nodeAcquired("0s", "node2"), nodeAcquired("0s", "node3"), nodeAcquired("1s", "node5"),
			`lock acquire 0s under lock acquire {error.type="error" lock.attempts=1 lock.contended=false lock.key="invoice/42"` +
				` lock.outcome="error" lock.ttl=30.0 server.address="node4"} Error: lockstep: acquire "invoice/42": injected fault`,
			`lock hold 2s under caller {lock.key="invoice/42"} -> lock acquire`,
			released,
			nodeReleased("node1"), nodeReleased("node2"), nodeReleased("node3"), nodeReleased("node5"),
			// The node that failed may have the lease. The cleanup is confirmed three times.
			`4 × lock release 0s under lock release {lock.key="invoice/42" lock.lost.reason="stolen" server.address="node4"}`,
		},
		metrics: samples{}.with("2s"),
	},
	{
		name:  "around each node of a quorum alone",
		setup: setup{nodes: 3, notOutside: true, aroundNodes: true},
		run: func(x *scene) {
			x.lateThird()
			l := x.lock()
			time.Sleep(time.Second)
			x.unlock(l)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0 server.address="node1"}`,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0 server.address="node2"}`,
			`lock acquire 10ms under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0 server.address="node3"}`,
			`lock release 0s under caller {lock.key="invoice/42" server.address="node1"}`,
			`lock release 0s under caller {lock.key="invoice/42" server.address="node2"}`,
			`lock release 0s under caller {lock.key="invoice/42" server.address="node3"}`,
		},
		metrics: samples{ // of each node; no node knows that the quorum holds the lock
			"lock.acquire.duration{lock.outcome=acquired,server.address=node1}": "0s",
			"lock.acquire.duration{lock.outcome=acquired,server.address=node2}": "0s",
			"lock.acquire.duration{lock.outcome=acquired,server.address=node3}": "10ms",
			"lock.acquire.attempts{server.address=node1}":                       "1",
			"lock.acquire.attempts{server.address=node2}":                       "1",
			"lock.acquire.attempts{server.address=node3}":                       "1",
			"lock.waiting{server.address=node1}":                                "0",
			"lock.waiting{server.address=node2}":                                "0",
			"lock.waiting{server.address=node3}":                                "0",
		},
	},
}

func afterContention(x *scene) {
	x.held(2 * time.Second)
	err := x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error {
		x.now(0, 1)
		time.Sleep(time.Second)
		return nil
	})
	if err != nil {
		x.Error(err)
	}
}

func nodeAcquired(took, node string) string {
	return `lock acquire ` + took + ` under lock acquire {lock.attempts=1 lock.contended=false lock.key="invoice/42"` +
		` lock.outcome="acquired" lock.ttl=30.0 server.address="` + node + `"}`
}

func nodeReleased(node string) string {
	return `lock release 0s under lock release {lock.key="invoice/42" server.address="` + node + `"}`
}

func TestTwoClientsEachReportToTheirOwnMiddleware(t *testing.T) {
	other := newSDK()
	play(t, setup{}, func(x *scene) {
		beside := locker.New(single.New(x.store()), locker.WithTTL(ttl), locker.WithMiddleware(otellocker.New(other.options()...)))
		l := x.lock()
		_, err := beside.TryLock(context.Background(), key)
		x.wantMatch(err, locker.ErrHeld)
		x.unlock(l)
	}, func(x *scene) {
		x.wantSpans(t, acquired, released)
		x.wantMetrics(t, samples{}.with("0s"))
		other.wantSpans(t, `lock acquire 0s root `+attemptRefused)
		other.wantMetrics(t, samples{
			"lock.acquire.duration{lock.outcome=busy}": "0s",
			"lock.acquire.attempts":                    "1",
			"lock.contentions":                         "1",
			"lock.waiting":                             "0",
		})
	})
}
