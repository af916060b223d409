package lockertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

var renewDoubles = []broken{
	{
		bug:     "the Client does not extend",
		options: []locker.Option{locker.WithoutExtension()},
		breaks: []string{
			"a held lock is extended for as long as it is held",
			"one extension that fails does not lose the lock",
			"one extension whose reply is lost does not lose the lock",
			"one extension that hangs and ignores its ctx does not lose the lock",
		},
	},
	{
		bug: "the Client extends as if every answer were yes",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, extend: func(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
				_, _ = next.Extend(ctx, lease, ttl)
				lease.Expires = locker.Until(time.Now(), ttl)
				return lease, nil
			}}
		},
		breaks: []string{
			"when the key is deleted, the context ends with ErrLost, stolen, no later than Expires",
			"when another has taken the lock, the context ends with ErrLost, stolen, no later than Expires",
			"when extensions fail, the context ends with ErrLost, unavailable, no later than Expires",
			"Extend of a lock that was taken away matches ErrLost and ends its context",
			"Unlock after the lock was lost matches ErrLost and leaves the next holder alone",
			"Do whose lock was lost says so, although work did not fail",
		},
	},
	{
		bug: "the Client takes a failed extension for a loss",
		client: badErrors(func(op Op, _ string, err error) error {
			if op == Extend && unknown(err) {
				return &locker.LostError{Reason: locker.LostStolen}
			}
			return err
		}),
		breaks: []string{
			"one extension that fails does not lose the lock",
			"one extension whose reply is lost does not lose the lock",
			"one extension that hangs does not lose the lock",
			"when extensions fail, the context ends with ErrLost, unavailable, no later than Expires",
		},
	},
	{
		bug: "the Client takes a loss for a failed extension",
		client: badErrors(func(op Op, _ string, err error) error {
			if op == Extend && errors.Is(err, locker.ErrLost) {
				return errors.New("try again")
			}
			return err
		}),
		breaks: []string{
			"when the key is deleted, the context ends with ErrLost, stolen, no later than Expires",
			"when another has taken the lock, the context ends with ErrLost, stolen, no later than Expires",
			"Extend of a lock that was taken away matches ErrLost and ends its context",
		},
	},
	{
		bug: "the Client believes in a lease for ever",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(ctx context.Context, req locker.Request) (locker.Lease, error) {
				lease, err := next.Acquire(ctx, req)
				lease.Expires = lease.Expires.Add(2 * time.Minute)
				return lease, err
			}}
		},
		breaks: []string{
			"without extension a lock is lost at its Expires",
			"when extensions hang, the context ends with ErrLost, unavailable, no later than Expires",
			"when extensions hang and ignore their ctx, the context ends with ErrLost, unavailable, no later than Expires",
			"when everything hangs and ignores its ctx, the context ends with ErrLost no later than Expires",
			"an extension that lands after the lock was lost leaves nothing and nobody's lease longer",
			"when the ctx given to Lock ends, so does the lock's, and unless unlocked it runs out",
		},
	},
	{
		bug: "the Client extends one at a time, and waits",
		client: func(next locker.Locker) locker.Locker {
			var one sync.Mutex
			return double{Locker: next, extend: func(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
				if !one.TryLock() {
					return lease, errors.New("another is under way")
				}
				defer one.Unlock()
				return next.Extend(ctx, lease, ttl)
			}}
		},
		breaks: []string{
			"one extension that hangs does not lose the lock",
			"one extension that hangs and ignores its ctx does not lose the lock",
		},
	},
	{
		bug: "the Client goes on extending after Unlock",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease locker.Lease) error {
				err := next.Release(ctx, lease)
				go func() {
					time.Sleep(short / 2)
					_, _ = next.Acquire(context.WithoutCancel(ctx), locker.Request{Key: lease.Key, Token: lease.Token, TTL: maxTTL})
				}()
				return err
			}}
		},
		breaks: []string{
			"when everything hangs and ignores its ctx, the context ends with ErrLost no later than Expires",
			"WithMaxHold ends the context with ErrLost, maximum hold, and Unlock frees the lock",
			"Unlock with a ctx that is already done, or with the lock's own, releases",
			"Unlock returns when its ctx ends, and goes on in the background until the lock is released",
			"Unlock with a ctx that is already done waits a second for a store that hangs, no longer",
			"an extension that hangs holds Unlock up no longer than its ctx, and leaves nothing",
			"Do whose ctx ends during work releases the lock",
		},
	},
}
