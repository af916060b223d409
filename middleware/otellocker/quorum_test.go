package otellocker_test

import (
	"context"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
)

// slowly fails after the other nodes have answered, so that their votes are counted.
func slowly(context.Context, func(context.Context) error) error {
	time.Sleep(10 * time.Millisecond)
	return backendtest.ErrInjected
}

// lateThird makes the third node answer after the quorum is reached, so that its vote never counts.
func (x *scene) lateThird() {
	x.faults[2].Once(backendtest.SetNX, backendtest.Late(10*time.Millisecond))
}

// quorumScenarios are scenarios of a quorum.
var quorumScenarios = []scenario{
	{
		name:  "quorum with a node down",
		setup: setup{nodes: 3},
		run: func(x *scene) {
			x.faults[2].Set(backendtest.All, backendtest.Fail)
			x.unlock(x.lock())
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired"` +
				` lock.quorum.acquired=2 lock.quorum.size=3 lock.ttl=30.0}`,
			released,
		},
		metrics: samples{}.with("0s"),
	},
	{
		name:  "no quorum: most nodes are down",
		setup: setup{nodes: 5},
		run: func(x *scene) {
			for _, f := range x.faults[2:] {
				f.Set(backendtest.SetNX, slowly)
			}
			_, err := x.client.Lock(x.ctx, key)
			x.wantMatch(err, backendtest.ErrInjected)
		},
		spans: []string{
			`lock acquire 10ms under caller {error.type="quorum" lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="error"` +
				` lock.quorum.acquired=2 lock.quorum.size=5 lock.ttl=30.0}` +
				` Error: lockstep: acquire "invoice/42": 2 of 5 nodes granted, 3 needed: node 3: injected fault; node 4: injected fault; node 5: injected fault`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=error,error.type=quorum}": "10ms",
			"lock.acquire.attempts": "1",
			"lock.waiting":          "0",
		},
	},
	{
		name:  "no quorum: another holder has it",
		setup: setup{nodes: 3},
		run: func(x *scene) {
			x.held(time.Second)
			x.faults[2].Set(backendtest.SetNX, slowly)
			_, err := x.client.TryLock(x.ctx, key)
			x.wantMatch(err, locker.ErrHeld)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=true lock.key="invoice/42" lock.outcome="busy"` +
				` lock.quorum.acquired=0 lock.quorum.size=3 lock.ttl=30.0}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=busy}": "0s",
			"lock.acquire.attempts":                    "1",
			"lock.contentions":                         "1",
			"lock.waiting":                             "0",
		},
	},
	{
		name:  "lost because too few nodes still have it",
		setup: setup{nodes: 3},
		run: func(x *scene) {
			x.lateThird()
			err := x.client.Do(x.ctx, key, func(ctx context.Context, _ *locker.Lock) error {
				synctest.Wait()
				for i := range 2 {
					x.stores[i].Delete(key)
					for _, op := range []backendtest.Op{backendtest.ExpireIf, backendtest.DeleteIf} {
						x.faults[i].Set(op, backendtest.Late(10*time.Millisecond)) // so that the vote of the third is counted
					}
				}
				<-ctx.Done()
				x.now(0, 0)
				return context.Cause(ctx)
			})
			x.wantMatch(err, locker.ErrLost)
		},
		spans: []string{
			quorumAcquired,
			`lock renew 10ms root {error.type="lost" lock.key="invoice/42" lock.lost.reason="quorum" lock.outcome="lost"` +
				` lock.quorum.acquired=1 lock.quorum.size=3 lock.ttl=30.0}` + noQuorumLeft + ` -> lock acquire`,
			`lock hold 9.61s under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="quorum"` +
				` lock.quorum.acquired=1 lock.quorum.size=3}` + noQuorumLeft + ` -> lock acquire`,
			// it asks the two for the cause
			`lock release 20ms under caller {lock.key="invoice/42" lock.lost.reason="quorum" lock.quorum.acquired=1 lock.quorum.size=3}`,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=lost}":     "1",
			"lock.losses{lock.lost.reason=quorum}": "1",
		}.with("9.61s"),
	},
	{
		name:  "extension without a quorum that is repeated",
		setup: setup{nodes: 3},
		run: func(x *scene) {
			x.lateThird()
			for i := range 2 {
				x.faults[i].Once(backendtest.ExpireIf, slowly)
			}
			l := x.lock()
			time.Sleep(20 * time.Second)
			x.unlock(l)
		},
		spans: []string{
			quorumAcquired, released,
			`lock renew 10ms root {error.type="quorum" lock.key="invoice/42" lock.outcome="error"` +
				` lock.quorum.acquired=1 lock.quorum.size=3 lock.ttl=30.0}` +
				` Error: lockstep: extend "invoice/42": 1 of 3 nodes granted, 2 needed: node 1: injected fault; node 2: injected fault -> lock acquire`,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=error}":   "1",
			"lock.renewals{lock.outcome=renewed}": "1",
			"lock.renewal.slack":                  "13.398666667s",
		}.with("20s"),
	},
	{
		name:  "release without a quorum",
		setup: setup{nodes: 3},
		run: func(x *scene) {
			x.lateThird()
			for i := range 2 {
				x.faults[i].Set(backendtest.DeleteIf, func(ctx context.Context, execute func(context.Context) error) error {
					time.Sleep(10 * time.Millisecond)
					return backendtest.Permanent(ctx, execute)
				})
			}
			l := x.lock()
			time.Sleep(time.Second)
			x.wantMatch(l.Unlock(x.ctx), backendtest.ErrInjected)
		},
		spans: []string{
			quorumAcquired,
			`lock release 10ms under caller {error.type="quorum" lock.key="invoice/42" lock.quorum.acquired=1 lock.quorum.size=3}` +
				` Error: lockstep: release "invoice/42": 1 of 3 nodes granted, 2 needed: node 1: injected fault; node 2: injected fault`,
		},
		metrics: samples{}.with("1s"),
	},
}

const (
	quorumAcquired = `lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired"` +
		` lock.quorum.acquired=2 lock.quorum.size=3 lock.ttl=30.0}`
	noQuorumLeft = ` Error: lockstep: hold "invoice/42": lock lost: too few nodes still have it:` +
		` 1 of 3 nodes granted, 2 needed: node 1: lost; node 2: lost`
)
