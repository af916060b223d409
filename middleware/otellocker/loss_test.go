package otellocker_test

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
)

const (
	stolen          = ` Error: lockstep: hold "invoice/42": lock lost: the store no longer has it`
	releasedNothing = `lock release 0s under caller {lock.key="invoice/42" lock.lost.reason="stolen"}`
)

// lossScenarios are the ways in which a lock is lost, other than by a quorum.
var lossScenarios = []scenario{
	{
		name: "stolen and never unlocked",
		run: func(x *scene) {
			l := x.lock()
			x.store().Delete(key)
			<-l.Context().Done()
			x.now(0, 0)
		},
		spans: []string{
			acquired,
			`lock renew 0s root {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen" lock.outcome="lost" lock.ttl=30.0}` +
				stolen + ` -> lock acquire`,
			releasedNothing, // the cleanup finds nothing
		},
		metrics: samples{
			"lock.renewals{lock.outcome=lost}":     "1",
			"lock.losses{lock.lost.reason=stolen}": "1",
		}.with("9.6s"),
	},
	{
		name:  "stolen and unlocked, with a hold span",
		setup: setup{watched: []otellocker.Option{otellocker.WithHoldSpan()}},
		run: func(x *scene) {
			l := x.lock()
			x.store().Delete(key)
			<-l.Context().Done()
			x.now(0, 0)
			for range 2 {
				x.wantMatch(l.Unlock(x.ctx), locker.ErrLost)
			}
		},
		spans: []string{
			acquired,
			`lock renew 0s root {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen" lock.outcome="lost" lock.ttl=30.0}` +
				stolen + ` -> lock acquire`,
			`lock hold 9.6s under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen"}` + stolen + ` -> lock acquire`,
			releasedNothing,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=lost}":     "1",
			"lock.losses{lock.lost.reason=stolen}": "1",
		}.with("9.6s"),
	},
	{
		name: "stolen, and found by Unlock",
		run: func(x *scene) {
			err := x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error {
				time.Sleep(time.Second)
				x.store().Delete(key)
				return nil
			})
			x.wantMatch(err, locker.ErrLost)
		},
		spans: []string{
			acquired,
			`lock hold 1s under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="stolen"}` + stolen + ` -> lock acquire`,
			releasedNothing,
		},
		metrics: samples{"lock.losses{lock.lost.reason=stolen}": "1"}.with("1s"),
	},
	{
		name:  "expired and never unlocked, with a hold span",
		setup: setup{watched: []otellocker.Option{otellocker.WithHoldSpan()}},
		run: func(x *scene) {
			l := x.lock(locker.WithoutRenewal())
			<-l.Context().Done()
			x.now(0, 0)
		},
		spans: []string{
			acquired, released, // the cleanup
			`lock hold 29.698s under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="expired"}` +
				` Error: lockstep: hold "invoice/42": lock lost: its time ran out -> lock acquire`,
		},
		metrics: samples{"lock.losses{lock.lost.reason=expired}": "1"}.with("29.698s"),
	},
	{
		name:  "lost because the server can't be reached",
		setup: setup{client: []locker.ClientOption{locker.WithTTL(100 * time.Millisecond)}},
		run: func(x *scene) {
			err := x.client.Do(x.ctx, key, func(ctx context.Context, _ *locker.Lock) error {
				x.fault(backendtest.ExpireIf, backendtest.Fail)
				<-ctx.Done()
				x.now(0, 0)
				return context.Cause(ctx)
			})
			x.wantMatch(err, locker.ErrLost)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=0.1}`,
			`7 × lock renew 0s root {error.type="error" lock.key="invoice/42" lock.outcome="error" lock.ttl=0.1}` +
				` Error: lockstep: extend "invoice/42": injected fault -> lock acquire`,
			`lock hold 97ms under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="unavailable"}` +
				` Error: lockstep: hold "invoice/42": lock lost: its time ran out while extensions failed: extend: injected fault -> lock acquire`,
			released,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=error}":         "7",
			"lock.losses{lock.lost.reason=unavailable}": "1",
		}.with("97ms"),
	},
	{
		name: "lost because its Lock is garbage: an extension says so, since the garbage collector does not run in fake time",
		run: func(x *scene) {
			l := x.lock()
			x.faultOnce(backendtest.ExpireIf, func(context.Context, func(context.Context) error) error {
				return &locker.LostError{Key: key, Reason: locker.LostAbandoned}
			})
			<-l.Context().Done()
			x.now(0, 0)
		},
		spans: []string{
			acquired,
			`lock renew 0s root {error.type="lost" lock.key="invoice/42" lock.lost.reason="abandoned" lock.outcome="lost" lock.ttl=30.0}` +
				` Error: lockstep: extend "invoice/42": lock lost: its Lock became garbage without Unlock -> lock acquire`,
			released, // the cleanup
		},
		metrics: samples{
			"lock.abandoned":                          "1",
			"lock.renewals{lock.outcome=lost}":        "1",
			"lock.losses{lock.lost.reason=abandoned}": "1",
		}.with("9.6s"),
	},
	{
		name:  "held as long as it may be",
		setup: setup{watched: []otellocker.Option{otellocker.WithHoldSpan()}},
		run: func(x *scene) {
			l := x.lock(locker.WithMaxHold(time.Minute))
			<-l.Context().Done()
			x.now(0, 0)
			x.wantMatch(l.Unlock(x.ctx), locker.ErrLost)
		},
		spans: []string{
			acquired, released,
			`lock hold 1m0s under caller {error.type="lost" lock.key="invoice/42" lock.lost.reason="max_hold"}` +
				` Error: lockstep: hold "invoice/42": lock lost: it was held as long as allowed -> lock acquire`,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=renewed}":    "6",
			"lock.renewal.slack":                     "6×20.098s",
			"lock.losses{lock.lost.reason=max_hold}": "1",
		}.with("60s"),
	},
}

// releaseScenarios are releases that fail.
var releaseScenarios = []scenario{
	{
		name: "release with a permanent error",
		run: func(x *scene) {
			x.fault(backendtest.DeleteIf, backendtest.Permanent)
			l := x.lock()
			x.wantMatch(l.Unlock(x.ctx), backendtest.ErrInjected)
			x.now(0, 0)
		},
		spans: []string{
			acquired,
			`lock release 0s under caller {error.type="error" lock.key="invoice/42"} Error: lockstep: release "invoice/42": injected fault`,
		},
		metrics: samples{}.with("0s"),
	},
	{
		name: "release that fails and is repeated",
		run: func(x *scene) {
			x.faultOnce(backendtest.DeleteIf, backendtest.Fail)
			x.unlock(x.lock())
		},
		spans: []string{
			acquired, released,
			`lock release 0s under caller {error.type="error" lock.key="invoice/42"} Error: lockstep: release "invoice/42": injected fault`,
		},
		metrics: samples{}.with("0s"),
	},
}
