package lockertest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var minHoldDoubles = []broken{
	{
		bug: "the Client frees a lock with a minimum hold at Unlock",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, extend: func(ctx context.Context, lease contract.Lease, _ time.Duration) (contract.Lease, error) {
				return lease, next.Release(ctx, lease)
			}}
		},
		breaks: []string{"a lock with a minimum hold is free soon after it, and not at Unlock"},
	},
	{
		bug: "the Client asks nobody whether a lock with a minimum hold was lost",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, extend: func(_ context.Context, lease contract.Lease, _ time.Duration) (contract.Lease, error) {
				return lease, nil
			}}
		},
		breaks: []string{"Unlock of a lost lock with a minimum hold matches ErrLost and leaves the next holder alone"},
	},
	{
		bug: "the Client keeps the lock of a work that has failed",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(context.Context, contract.Lease) error { return nil }}
		},
		breaks: []string{"Do releases a lock with a minimum hold at once if work fails"},
	},
	{
		bug: "the ttl of a lock with a minimum hold is cut",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				req.TTL = min(req.TTL, locker.DefaultTTL)
				return next.Acquire(ctx, req)
			}}
		},
		breaks: []string{"a ttl over the limit is a permanent error under a minimum hold too, and nothing is sent"},
	},
	{
		bug: "the store is not told how much of a ttl the holder relies on",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(_ context.Context, req contract.Request) (contract.Lease, error) {
				return next.Acquire(context.Background(), req)
			}}
		},
		breaks: []string{"a minimum hold may be longer than the longest ttl, and its holder relies on the ttl"},
	},
}
