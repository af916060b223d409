package otellocker_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/middleware/otellocker"
)

// acquired and released are the spans of most scenarios.
const (
	acquired = `lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`
	released = `lock release 0s under caller {lock.key="invoice/42"}`
)

// with adds the samples of a Lock that is granted at once, and of the end of its hold.
func (s samples) with(held string) samples {
	s["lock.acquire.duration{lock.outcome=acquired}"] = "0s"
	s["lock.acquire.attempts"] = "1"
	s["lock.waiting"] = "0"
	s["lock.held"] = "0"
	s["lock.hold.duration"] = held
	return s
}

// holdScenarios are holds without a fault.
var holdScenarios = []scenario{
	{
		name: "held for several TTLs",
		run: func(x *scene) {
			l := x.lock()
			time.Sleep(100 * time.Second)
			x.now(0, 1)
			x.unlock(l)
		},
		spans: []string{acquired, released},
		metrics: samples{
			"lock.renewals{lock.outcome=renewed}": "10",
			"lock.renewal.slack":                  "10×20.098s",
		}.with("100s"),
	},
	{
		name: "Do",
		run: func(x *scene) {
			err := x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error {
				x.now(0, 1)
				time.Sleep(2 * time.Second)
				return nil
			})
			if err != nil {
				x.Error(err)
			}
		},
		spans:   []string{acquired, `lock hold 2s under caller {lock.key="invoice/42"} -> lock acquire`, released},
		metrics: samples{}.with("2s"),
	},
	{
		name: "Do whose work fails",
		run: func(x *scene) {
			failed := errors.New("no such invoice")
			err := x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error { return failed })
			x.wantMatch(err, failed)
		},
		spans:   []string{acquired, `lock hold 0s under caller {lock.key="invoice/42"} -> lock acquire`, released},
		metrics: samples{}.with("0s"),
	},
	{
		name:  "Lock with a hold span",
		setup: setup{watched: []otellocker.Option{otellocker.WithHoldSpan()}},
		run: func(x *scene) {
			l := x.lock()
			time.Sleep(2 * time.Second)
			x.unlock(l)
		},
		spans:   []string{acquired, `lock hold 2s under caller {lock.key="invoice/42"} -> lock acquire`, released},
		metrics: samples{}.with("2s"),
	},
	{
		name:  "handed over within the Client",
		setup: setup{watched: []otellocker.Option{otellocker.WithHoldSpan()}, client: []locker.ClientOption{locker.WithMaxHandovers(3)}},
		run: func(x *scene) {
			first, second := x.lock(), make(chan *locker.Lock)
			go func() { second <- x.lock() }()
			time.Sleep(2 * time.Second)
			x.now(1, 1)
			x.unlock(first)
			next := <-second
			if next.Lease().Token != first.Lease().Token {
				x.Error("it was not handed over")
			}
			time.Sleep(3 * time.Second)
			x.now(0, 1)
			x.unlock(next)
		},
		spans: []string{
			acquired,
			`lock acquire 2s under caller {lock.attempts=2 lock.contended=true lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock hold 2s under caller {lock.key="invoice/42"} -> lock acquire`,
			`lock hold 3s under caller {lock.key="invoice/42"} -> lock acquire`,
			released, // the first was handed over, and no request was sent
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "0s 2s",
			"lock.acquire.attempts":                        "1 2",
			"lock.contentions":                             "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2s 3s",
		},
	},
	{
		name: "extended by hand",
		run: func(x *scene) {
			l := x.lock()
			time.Sleep(time.Second)
			if err := l.Extend(x.ctx, time.Minute); err != nil {
				x.Error(err)
			}
			time.Sleep(time.Second)
			x.unlock(l)
		},
		spans: []string{acquired, released},
		metrics: samples{
			"lock.renewals{lock.outcome=renewed}": "1",
			"lock.renewal.slack":                  "28.698s",
		}.with("2s"),
	},
}

// minimumHoldScenarios are holds that end before the key is free.
var minimumHoldScenarios = []scenario{
	{
		name: "unlocked before the end of a minimum hold",
		run: func(x *scene) {
			l := x.lock(locker.WithMinHold(time.Minute))
			time.Sleep(time.Second)
			x.unlock(l)
			x.now(0, 0)
		},
		spans: []string{strings.Replace(acquired, "30.0", "60.0", 1), released},
		// No slack: the hold is over.
		metrics: samples{"lock.renewals{lock.outcome=kept}": "1"}.with("1s"),
	},
	{
		name: "work under a minimum hold fails",
		run: func(x *scene) {
			failed := errors.New("no such invoice")
			x.wantMatch(x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error { return failed }, locker.WithMinHold(time.Minute)), failed)
		},
		spans: []string{
			strings.Replace(acquired, "30.0", "60.0", 1),
			`lock hold 0s under caller {lock.key="invoice/42"} -> lock acquire`, released,
		},
		metrics: samples{}.with("0s"),
	},
	{
		name: "the store does not confirm a minimum hold at once",
		run: func(x *scene) {
			x.faultOnce(backendtest.ExpireIf, backendtest.Fail)
			x.unlock(x.lock(locker.WithMinHold(time.Minute)))
		},
		spans: []string{
			strings.Replace(acquired, "30.0", "60.0", 1), released,
			`lock renew 0s root {error.type="error" lock.key="invoice/42" lock.outcome="error" lock.ttl=60.0}` +
				` Error: lockstep: extend "invoice/42": injected fault -> caller`,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=error}": "1",
			"lock.renewals{lock.outcome=kept}":  "1",
		}.with("0s"),
	},
}

// renewalScenarios are extensions that fail, without the lock being lost.
var renewalScenarios = []scenario{
	{
		name:  "abandoned lock",
		setup: setup{forgotten: true},
		run: func(x *scene) {
			l := x.lock()
			time.Sleep(15 * time.Second)
			x.unlock(l)
		},
		spans: []string{acquired, released},
		metrics: samples{
			"lock.abandoned":                      "1",
			"lock.renewals{lock.outcome=renewed}": "1",
			"lock.renewal.slack":                  "20.098s",
		}.with("15s"),
	},
	{
		name: "extension that fails and is repeated",
		run: func(x *scene) {
			x.faultOnce(backendtest.ExpireIf, backendtest.Fail)
			l := x.lock()
			time.Sleep(20 * time.Second)
			x.unlock(l)
		},
		spans: []string{
			acquired, released,
			`lock renew 0s root {error.type="error" lock.key="invoice/42" lock.outcome="error" lock.ttl=30.0}` +
				` Error: lockstep: extend "invoice/42": injected fault -> lock acquire`,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=error}":   "1",
			"lock.renewals{lock.outcome=renewed}": "1",
			"lock.renewal.slack":                  "13.398666667s", // it is repeated after a third of what is left
		}.with("20s"),
	},
	{
		name: "extension that is not answered and is repeated",
		run: func(x *scene) {
			x.faultOnce(backendtest.ExpireIf, backendtest.Hang)
			l := x.lock()
			time.Sleep(25500 * time.Millisecond)
			x.unlock(l)
		},
		spans: []string{
			acquired, released,
			`lock renew 15.0735s root {error.type="timeout" lock.key="invoice/42" lock.outcome="timeout" lock.ttl=30.0}` +
				` Error: lockstep: extend "invoice/42": context deadline exceeded -> lock acquire`,
		},
		metrics: samples{
			"lock.renewals{lock.outcome=timeout}": "1",
			"lock.renewals{lock.outcome=renewed}": "1",
			"lock.renewal.slack":                  "13.398666667s",
		}.with("25.5s"),
	},
	{
		name: "extension that Unlock cuts short",
		run: func(x *scene) {
			x.faultOnce(backendtest.ExpireIf, backendtest.Hang)
			l := x.lock()
			time.Sleep(10 * time.Second)
			x.unlock(l)
		},
		spans:   []string{acquired, released},
		metrics: samples{"lock.renewals{lock.outcome=canceled}": "1"}.with("10s"),
	},
	{
		name:  "extension that comes after Unlock",
		setup: setup{watched: []otellocker.Option{otellocker.WithHoldSpan()}},
		run: func(x *scene) {
			x.faultOnce(backendtest.ExpireIf, backendtest.Late(time.Second)) // the key is gone by then
			l := x.lock()
			time.Sleep(10 * time.Second)
			x.unlock(l) // waits for it for 100 ms
		},
		spans:   []string{acquired, `lock hold 10s under caller {lock.key="invoice/42"} -> lock acquire`, released},
		metrics: samples{"lock.renewals{lock.outcome=canceled}": "1"}.with("10s"),
	},
	{
		name: "extension that the deadline of the caller cuts short",
		run: func(x *scene) {
			x.faultOnce(backendtest.ExpireIf, backendtest.Hang)
			ctx, cancel := context.WithTimeout(x.ctx, 10*time.Second)
			defer cancel()
			l, err := x.client.Lock(ctx, key)
			if err != nil {
				x.Fatal(err)
			}
			<-l.Context().Done()
			x.now(0, 1) // held until Unlock or the end of the lease
			time.Sleep(time.Second)
			x.unlock(l)
		},
		spans:   []string{acquired, released},
		metrics: samples{"lock.renewals{lock.outcome=canceled}": "1"}.with("11s"),
	},
	{
		name: "extensions by hand that fail",
		run: func(x *scene) {
			x.faultOnce(backendtest.ExpireIf, backendtest.Fail, backendtest.Fail)
			l := x.lock()
			x.wantMatch(l.Extend(x.ctx, time.Minute), backendtest.ErrInjected)
			x.wantMatch(l.Extend(l.Context(), time.Minute), backendtest.ErrInjected)
			x.unlock(l)
		},
		spans: []string{
			acquired, released,
			`lock renew 0s root {error.type="error" lock.key="invoice/42" lock.outcome="error" lock.ttl=60.0}` +
				` Error: lockstep: extend "invoice/42": injected fault -> caller`,
			`lock renew 0s root {error.type="error" lock.key="invoice/42" lock.outcome="error" lock.ttl=60.0}` +
				` Error: lockstep: extend "invoice/42": injected fault -> lock acquire`,
		},
		metrics: samples{"lock.renewals{lock.outcome=error}": "2"}.with("0s"),
	},
	{
		name: "extension by hand, under another lock, that fails",
		run: func(x *scene) {
			err := x.client.Do(x.ctx, "outer "+key, func(ctx context.Context, _ *locker.Lock) error {
				l, err := x.client.Lock(ctx, key)
				if err != nil {
					return err
				}
				x.faultOnce(backendtest.ExpireIf, backendtest.Fail)
				x.wantMatch(l.Extend(ctx, time.Minute), backendtest.ErrInjected)
				return l.Unlock(ctx)
			})
			if err != nil {
				x.Error(err)
			}
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="outer invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock acquire 0s under lock hold {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock hold 0s under caller {lock.key="outer invoice/42"} -> lock acquire`,
			`lock release 0s under caller {lock.key="outer invoice/42"}`,
			`lock release 0s under lock hold {lock.key="invoice/42"}`,
			`lock renew 0s root {error.type="error" lock.key="invoice/42" lock.outcome="error" lock.ttl=60.0}` +
				` Error: lockstep: extend "invoice/42": injected fault -> lock hold`, // linked to the hold that the ctx belongs to
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2×0s",
			"lock.acquire.attempts":                        "2×1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2×0s",
			"lock.renewals{lock.outcome=error}":            "1",
		},
	},
}
