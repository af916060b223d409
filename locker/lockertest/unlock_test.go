package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var unlockDoubles = []broken{
	{
		bug: "the Client releases once, whatever the answer",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease contract.Lease) error {
				err := next.Release(ctx, lease)
				if unknown(err) {
					return permanentError{err}
				}
				return err
			}}
		},
		breaks: []string{
			"Unlock whose reply is lost returns nil, since its second Release finds nothing",
			"Unlock whose request is lost sends it again",
			"after an Unlock whose ctx has ended, the next holder gets the lock and keeps it",
		},
	},
	{
		bug: "the Client releases under the caller's ctx",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease contract.Lease) error {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				if err := next.Release(ctx, lease); err != nil {
					return permanentError{err}
				}
				return nil
			}}
		},
		breaks: []string{
			"Lock and TryLock of a free lock succeed at once, and Unlock leaves nothing",
			"a lock that a Client holds is held for everyone else",
			"concurrent Unlocks of one lock get the same result",
			"Do calls work under the lock and releases the lock, whether work fails or not",
			"Do releases the lock when work panics, and passes the panic on",
			"Do releases the lock when work calls runtime.Goexit",
		},
	},
	{
		bug: "the Client takes its own second Release for a loss",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease contract.Lease) error {
				err := next.Release(ctx, lease)
				if unknown(err) {
					err = next.Release(ctx, lease)
				}
				return err
			}}
		},
		breaks: []string{
			"Unlock whose reply is lost returns nil, since its second Release finds nothing",
		},
	},
	{
		bug: "the Client waits for the release after the end of ctx",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease contract.Lease) error {
				err := next.Release(ctx, lease)
				time.Sleep(5 * time.Second)
				return err
			}}
		},
		breaks: []string{
			"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone",
			"Unlock releases the lock even with a ctx that is done, or with the context of the lock",
			"Unlock returns a permanent error of Release at once",
			"a second Unlock returns the result of the first and leaves the next holder alone",
			"Do joins the error of work and the error of the release, in this order",
		},
	},
	{
		bug: "the Client releases any value",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease contract.Lease) error {
				err := r.Release(ctx, lease)
				r.Expire(lease.Key)
				return err
			}}
		},
		breaks: []string{
			"when Release fails, the error does not match ErrLost, and a second Release frees the lock",
		},
	},
	{
		bug: "the Client hides a loss from Unlock",
		client: func(next locker.Locker) locker.Locker {
			return double{
				Locker: next,
				extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
					after, err := next.Extend(ctx, lease, ttl)
					if errors.Is(err, locker.ErrLost) {
						return after, errors.New("hidden")
					}
					return after, err
				},
				release: func(ctx context.Context, lease contract.Lease) error {
					if err := next.Release(ctx, lease); !errors.Is(err, locker.ErrLost) {
						return err
					}
					return nil
				},
			}
		},
		breaks: []string{
			"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone",
			"a second Unlock returns the result of the first and leaves the next holder alone",
			"Do joins the error of work and the error of the release, in this order",
		},
	},
	{
		bug: "the Client does not release",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(context.Context, contract.Lease) error { return nil }}
		},
		breaks: []string{
			"Lock and TryLock of a free lock succeed at once, and Unlock leaves nothing",
			"Lock waits for a lock that is held, and gets it soon after Unlock",
			"WithMaxHold ends the context with ErrLost, maximum hold, and Unlock frees the lock",
			"Unlock returns when its ctx ends, and goes on in the background until the lock is released",
			"Unlock with a ctx that is done waits for a store that hangs for a second at most",
			"concurrent Unlocks of one lock get the same result",
			"Do calls work under the lock and releases the lock, whether work fails or not",
			"Do releases the lock when work panics, and passes the panic on",
			"Do releases the lock when work calls runtime.Goexit",
			"Do releases the lock when its ctx ends during work",
		},
	},
}
