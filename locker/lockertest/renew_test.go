package lockertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var renewDoubles = []broken{
	{
		bug:     "the Client does not renew",
		options: []locker.ClientOption{locker.WithoutRenewal()},
		breaks: []string{
			"a Client renews a lock for as long as it is held",
			"one renewal that fails does not lose the lock",
			"one renewal whose reply is lost does not lose the lock",
			"one renewal that hangs and ignores its ctx does not lose the lock",
		},
	},
	{
		bug: "the Client takes every renewal for a success",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				_, _ = next.Extend(ctx, lease, ttl)
				lease.Expires = contract.Until(time.Now(), ttl)
				return lease, nil
			}}
		},
		breaks: []string{
			"when the key is deleted, the context ends with ErrLost, stolen, no later than Expires",
			"when another holder has taken the lock, the context ends with ErrLost, stolen, no later than Expires",
			"when renewals fail, the context ends with ErrLost, unavailable, no later than Expires",
			"Extend of a lock that another holder took matches ErrLost and ends its context",
			"Unlock after the lock was lost matches ErrLost and leaves the next holder alone",
			"Do whose lock was lost matches ErrLost, even if work did not fail",
		},
	},
	{
		bug: "the Client takes a failed renewal for a loss",
		client: badErrors(func(op Op, _ string, err error) error {
			if op == Extend && unknown(err) {
				return &locker.LostError{Reason: locker.LostStolen}
			}
			return err
		}),
		breaks: []string{
			"one renewal that fails does not lose the lock",
			"one renewal whose reply is lost does not lose the lock",
			"one renewal that hangs does not lose the lock",
			"when renewals fail, the context ends with ErrLost, unavailable, no later than Expires",
		},
	},
	{
		bug: "the Client takes a loss for a failed renewal",
		client: badErrors(func(op Op, _ string, err error) error {
			if op == Extend && errors.Is(err, locker.ErrLost) {
				return errors.New("try again")
			}
			return err
		}),
		breaks: []string{
			"when the key is deleted, the context ends with ErrLost, stolen, no later than Expires",
			"when another holder has taken the lock, the context ends with ErrLost, stolen, no later than Expires",
			"Extend of a lock that another holder took matches ErrLost and ends its context",
		},
	},
	{
		bug: "the Client believes in a lease for ever",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				lease, err := next.Acquire(ctx, req)
				lease.Expires = lease.Expires.Add(2 * time.Minute)
				return lease, err
			}}
		},
		breaks: []string{
			"without renewal a lock is lost at its Expires",
			"when renewals hang, the context ends with ErrLost, unavailable, no later than Expires",
			"when renewals hang and ignore their ctx, the context ends with ErrLost, unavailable, no later than Expires",
			"when every call hangs and ignores its ctx, the context ends with ErrLost no later than Expires",
			"a renewal that arrives after the lock was lost leaves nothing, and makes no lease longer",
			"when the ctx given to Lock ends, the context of the lock ends, and the lease ends in its time",
		},
	},
	{
		bug: "the Client makes one renewal at a time",
		client: func(next locker.Locker) locker.Locker {
			var one sync.Mutex
			return double{Locker: next, extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				if !one.TryLock() {
					return lease, errors.New("another is under way")
				}
				defer one.Unlock()
				return next.Extend(ctx, lease, ttl)
			}}
		},
		breaks: []string{
			"one renewal that hangs does not lose the lock",
			"one renewal that hangs and ignores its ctx does not lose the lock",
		},
	},
	{
		bug: "the Client renews after Unlock",
		client: func(next locker.Locker) locker.Locker {
			var call atomic.Value // the ctx of the last Acquire
			return double{Locker: next, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				call.Store(context.WithoutCancel(ctx))
				return next.Acquire(ctx, req)
			}, release: func(ctx context.Context, lease contract.Lease) error {
				err := next.Release(ctx, lease)
				go func() {
					time.Sleep(short / 2)
					_, _ = next.Acquire(call.Load().(context.Context), contract.Request{Key: lease.Key, Token: lease.Token, TTL: maxTTL})
				}()
				return err
			}}
		},
		breaks: []string{
			"when every call hangs and ignores its ctx, the context ends with ErrLost no later than Expires",
			"WithMaxHold ends the context with ErrLost, maximum hold, and Unlock frees the lock",
			"Unlock releases the lock even with a ctx that is done, or with the context of the lock",
			"Unlock returns when its ctx ends, and goes on in the background until the lock is released",
			"Unlock with a ctx that is done waits for a store that hangs for a second at most",
			"an Extend that hangs delays Unlock no longer than the ctx of Unlock, and leaves nothing",
			"Do releases the lock when its ctx ends during work",
		},
	},
}
