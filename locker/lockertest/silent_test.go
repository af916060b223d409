package lockertest

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var silentDoubles = []broken{
	{
		bug: "the Client waits for an answer, however long that takes",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				lease, err := next.Acquire(ctx, req)
				if unknown(err) {
					time.Sleep(time.Minute)
				}
				return lease, err
			}}
		},
		breaks: []string{
			"a store that never answers ends a TryLock or Lock without deadline within its TTL + 2 s, as unknown, and the calls behind it go on",
			"what a store that never answers has granted to a TryLock or Lock without deadline is removed, and the calls behind it go on",
		},
	},
	{
		bug: "an attempt waits for the one before",
		locker: func(r *reference) locker.Locker {
			var turn sync.Mutex
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				for !turn.TryLock() {
					time.Sleep(tick)
				}
				defer turn.Unlock()
				return r.Acquire(context.WithoutCancel(ctx), req)
			}}
		},
		breaks: []string{
			"a store that never answers ends a TryLock or Lock without deadline within its TTL + 2 s, as unknown, and the calls behind it go on",
			"what a store that never answers has granted to a TryLock or Lock without deadline is removed, and the calls behind it go on",
			"under WithWait an attempt without an answer is followed by another one, which gets the lock within 3 s of its release",
			"under WithWait an attempt that was granted without an answer is followed by another one, which gets the lock within 3 s of its release",
		},
	},
}
