package otellocker_test

import (
	"context"
	"errors"
	"os"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
)

// acquireScenarios are the ways in which a Lock ends, other than by a quorum.
var acquireScenarios = []scenario{
	{
		name: "acquired at once",
		run: func(x *scene) {
			l := x.lock()
			x.now(0, 1)
			time.Sleep(time.Second)
			x.unlock(l)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock release 0s under caller {lock.key="invoice/42"}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "0s",
			"lock.acquire.attempts":                        "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "1s",
		},
	},
	{
		name: "acquired after contention",
		run: func(x *scene) {
			x.held(2 * time.Second)
			time.AfterFunc(time.Second, func() { x.now(1, 0) })
			l := x.lock()
			x.now(0, 1)
			x.unlock(l)
		},
		spans: []string{
			`lock acquire 2s under caller {lock.attempts=3 lock.contended=true lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock release 0s under caller {lock.key="invoice/42"}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2s",
			"lock.acquire.attempts":                        "3", // held, held again when the watch was active, granted after the wake-up
			"lock.contentions":                             "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "0s",
		},
	},
	{
		name: "acquired after a wait in line",
		run: func(x *scene) {
			first := x.lock()
			got := make(chan *locker.Lock)
			go func() {
				l := x.lock()
				got <- l
			}()
			synctest.Wait()
			x.now(1, 1)
			time.Sleep(2 * time.Second)
			x.unlock(first)
			second := <-got
			x.now(0, 1)
			x.unlock(second)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock acquire 2s under caller {lock.attempts=3 lock.contended=true lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`2 × lock release 0s under caller {lock.key="invoice/42"}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "0s 2s",
			"lock.acquire.attempts":                        "1 3",
			"lock.contentions":                             "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2s 0s",
		},
	},
	{
		name: "TryLock of a lock that is busy",
		run: func(x *scene) {
			x.held(time.Second)
			_, err := x.client.TryLock(x.ctx, key)
			x.wantMatch(err, locker.ErrHeld)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=true lock.key="invoice/42" lock.outcome="busy" lock.ttl=30.0}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=busy}": "0s",
			"lock.acquire.attempts":                    "1",
			"lock.contentions":                         "1",
			"lock.waiting":                             "0",
		},
	},
	{
		name: "TryLock of a key with a value that no lease wrote",
		run: func(x *scene) {
			x.store().Set(key, "foreign", 0)
			_, err := x.client.TryLock(x.ctx, key)
			x.wantMatch(err, locker.ErrHeld, locker.ErrForeignKey)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=true lock.key="invoice/42" lock.outcome="busy" lock.ttl=30.0}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=busy}": "0s",
			"lock.acquire.attempts":                    "1",
			"lock.contentions":                         "1",
			"lock.waiting":                             "0",
		},
	},
	{
		name: "as many attempts as WithAttempts allows",
		run: func(x *scene) {
			x.held(time.Minute)
			_, err := x.client.Lock(x.ctx, key, locker.WithAttempts(2))
			x.wantMatch(err, locker.ErrHeld)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=2 lock.contended=true lock.key="invoice/42" lock.outcome="busy" lock.ttl=30.0}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=busy}": "0s",
			"lock.acquire.attempts":                    "2",
			"lock.contentions":                         "1",
			"lock.waiting":                             "0",
		},
	},
	{
		name: "wait limit",
		run: func(x *scene) {
			x.held(time.Minute)
			_, err := x.client.Lock(x.ctx, key, locker.WithWait(5*time.Second))
			x.wantMatch(err, locker.ErrWaitLimit, locker.ErrHeld)
		},
		spans: []string{
			`lock acquire 5s under caller {error.type="wait_limit" lock.attempts=2 lock.contended=true lock.key="invoice/42" lock.outcome="timeout" lock.ttl=30.0}` +
				` Error: lockstep: lock "invoice/42": wait limit reached: held by someone else; free in 25s unless renewed`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=timeout,error.type=wait_limit}": "5s",
			"lock.acquire.attempts": "2",
			"lock.contentions":      "1",
			"lock.waiting":          "0",
		},
	},
	{
		name: "wait limit behind another call that got no answer",
		run: func(x *scene) {
			x.faultOnce(backendtest.SetNX, backendtest.Hang)
			ctx, cancel := context.WithCancel(x.ctx)
			go func() { _, _ = x.client.Lock(ctx, key) }()
			synctest.Wait()
			_, err := x.client.Lock(x.ctx, key, locker.WithWait(5*time.Second))
			x.wantMatch(err, locker.ErrWaitLimit)
			cancel()
		},
		spans: []string{
			`lock acquire 5s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="canceled" lock.ttl=30.0}`,
			`lock acquire 5s under caller {error.type="wait_limit" lock.attempts=0 lock.contended=true lock.key="invoice/42" lock.outcome="timeout" lock.ttl=30.0}` +
				` Error: lockstep: lock "invoice/42": wait limit reached: ` +
				`no answer from the store to the call of this Client that is first in line`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=timeout,error.type=wait_limit}": "5s",
			"lock.acquire.duration{lock.outcome=canceled}":                      "5s",
			"lock.acquire.attempts":                                             "0 1",
			"lock.contentions":                                                  "1",
			"lock.waiting":                                                      "0",
		},
	},
	{
		name: "deadline of the ctx",
		run: func(x *scene) {
			x.held(time.Minute)
			ctx, cancel := context.WithTimeout(x.ctx, 3*time.Second)
			defer cancel()
			_, err := x.client.Lock(ctx, key)
			x.wantMatch(err, context.DeadlineExceeded)
		},
		spans: []string{
			`lock acquire 3s under caller {error.type="timeout" lock.attempts=2 lock.contended=true lock.key="invoice/42" lock.outcome="timeout" lock.ttl=30.0}` +
				` Error: lockstep: lock "invoice/42": context deadline exceeded: held by someone else; free in 27s unless renewed`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=timeout,error.type=timeout}": "3s",
			"lock.acquire.attempts": "2",
			"lock.contentions":      "1",
			"lock.waiting":          "0",
		},
	},
	{
		name: "ctx cancelled while it waits",
		run: func(x *scene) {
			x.held(time.Minute)
			ctx, cancel := context.WithCancel(x.ctx)
			time.AfterFunc(3*time.Second, cancel)
			_, err := x.client.Lock(ctx, key)
			x.wantMatch(err, context.Canceled)
		},
		spans: []string{
			`lock acquire 3s under caller {lock.attempts=2 lock.contended=true lock.key="invoice/42" lock.outcome="canceled" lock.ttl=30.0}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=canceled}": "3s",
			"lock.acquire.attempts":                        "2",
			"lock.contentions":                             "1",
			"lock.waiting":                                 "0",
		},
	},
	{
		name: "ctx cancelled with a cause while the store hangs",
		run: func(x *scene) {
			x.fault(backendtest.SetNX, backendtest.Late(time.Minute))
			ctx, cancel := context.WithCancelCause(x.ctx)
			time.AfterFunc(3*time.Second, func() { cancel(errors.New("shutting down")) })
			_, err := x.client.TryLock(ctx, key)
			x.wantMatch(err, context.Canceled)
			x.fault(backendtest.All, nil)
		},
		spans: []string{
			`lock acquire 3s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="canceled" lock.ttl=30.0}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=canceled}": "3s",
			"lock.acquire.attempts":                        "1",
			"lock.waiting":                                 "0",
		},
	},
	{
		name: "server down",
		run: func(x *scene) {
			x.fault(backendtest.All, backendtest.Fail)
			_, err := x.client.Lock(x.ctx, key)
			x.wantMatch(err, backendtest.ErrInjected)
		},
		spans: []string{
			`lock acquire 0s under caller {error.type="error" lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="error" lock.ttl=30.0}` +
				` Error: lockstep: acquire "invoice/42": injected fault; cleanup runs until 00:00:30`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=error,error.type=error}": "0s",
			"lock.acquire.attempts": "1",
			"lock.waiting":          "0",
		},
	},
	{
		name: "server down while a call waits",
		run: func(x *scene) {
			x.held(2 * time.Second)
			time.AfterFunc(time.Second, func() { x.fault(backendtest.SetNX, backendtest.Fail) })
			_, err := x.client.Lock(x.ctx, key)
			x.wantMatch(err, backendtest.ErrInjected)
		},
		spans: []string{
			`lock acquire 2s under caller {error.type="error" lock.attempts=3 lock.contended=true lock.key="invoice/42" lock.outcome="error" lock.ttl=30.0}` +
				` Error: lockstep: acquire "invoice/42": injected fault; cleanup runs until 00:00:32`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=error,error.type=error}": "2s",
			"lock.acquire.attempts": "3",
			"lock.contentions":      "1",
			"lock.waiting":          "0",
		},
	},
	{
		name: "server that does not answer within the limit of its client library",
		run: func(x *scene) {
			x.fault(backendtest.SetNX, func(context.Context, func(context.Context) error) error {
				time.Sleep(5 * time.Second)
				return os.ErrDeadlineExceeded // as from a net.Conn
			})
			_, err := x.client.Lock(x.ctx, key)
			x.wantMatch(err, os.ErrDeadlineExceeded)
		},
		spans: []string{
			`lock acquire 5s under caller {error.type="timeout" lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="error" lock.ttl=30.0}` +
				` Error: lockstep: acquire "invoice/42": i/o timeout; cleanup runs until 00:00:35`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=error,error.type=timeout}": "5s",
			"lock.acquire.attempts": "1",
			"lock.waiting":          "0",
		},
	},
	{
		name: "key of another type",
		run: func(x *scene) {
			x.store().SetOther(key)
			_, err := x.client.Lock(x.ctx, key)
			x.wantMatch(err, locker.ErrForeignKey)
		},
		spans: []string{
			`lock acquire 0s under caller {error.type="foreign_key" lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="error" lock.ttl=30.0}` +
				` Error: lockstep: acquire "invoice/42": key holds something that is not a lease: key holds a value of another type`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=error,error.type=foreign_key}": "0s",
			"lock.acquire.attempts": "1",
			"lock.waiting":          "0",
		},
	},
	{
		name:  "numbered",
		setup: setup{numbers: true},
		run: func(x *scene) {
			l := x.lock()
			if l.Fence() != 946684800000000 { // the clock of the store
				x.Errorf("fence %d", l.Fence())
			}
			x.unlock(l)
			if err := x.client.Do(x.ctx, key, func(context.Context, *locker.Lock) error { return nil }); err != nil {
				x.Error(err)
			}
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.fence=946684800000000 lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.fence=946684800000001 lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock hold 0s under caller {lock.fence=946684800000001 lock.key="invoice/42"} -> lock acquire`,
			`2 × lock release 0s under caller {lock.key="invoice/42"}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "2×0s",
			"lock.acquire.attempts":                        "2×1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "2×0s",
		},
	},
	{
		name: "bad input, or a ctx that has ended",
		run: func(x *scene) {
			l := x.lock()
			done, cancel := context.WithCancel(x.ctx)
			cancel()
			_, err := x.client.Lock(done, key)
			x.wantMatch(err, context.Canceled)
			if _, err = x.client.Lock(x.ctx, ""); err == nil {
				x.Error("an empty key is locked")
			}
			if _, err = x.client.Lock(x.ctx, key, locker.WithTTL(-1)); err == nil {
				x.Error("a negative TTL is granted")
			}
			x.unlock(l)
		},
		spans: []string{
			`lock acquire 0s under caller {lock.attempts=1 lock.contended=false lock.key="invoice/42" lock.outcome="acquired" lock.ttl=30.0}`,
			`lock release 0s under caller {lock.key="invoice/42"}`,
		},
		metrics: samples{
			"lock.acquire.duration{lock.outcome=acquired}": "0s",
			"lock.acquire.attempts":                        "1",
			"lock.waiting":                                 "0",
			"lock.held":                                    "0",
			"lock.hold.duration":                           "0s",
		},
	},
}

func (x *scene) wantMatch(err error, targets ...error) {
	x.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			x.Errorf("error %v does not match %v", err, target)
		}
	}
}
