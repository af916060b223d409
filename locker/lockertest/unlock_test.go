package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

var unlockDoubles = []broken{
	{
		bug: "the Client releases once, whatever the answer",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease locker.Lease) error {
				err := next.Release(ctx, lease)
				if unknown(err) {
					return permanentError{err}
				}
				return err
			}}
		},
		breaks: []string{
			"Unlock whose reply is lost returns nil, since its own repeat finds nothing",
			"Unlock whose request is lost repeats it",
			"Unlock whose ctx has ended leaves a lock that the next one gets, and keeps",
		},
	},
	{
		bug: "the Client releases under the caller's ctx",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease locker.Lease) error {
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
			"a lock that a Client holds is refused to everyone else",
			"many who Unlock at once get one result",
			"Do works under the lock and releases it, whether work fails or not",
			"Do releases the lock when work panics, and passes the panic on",
			"Do releases the lock when work calls runtime.Goexit",
		},
	},
	{
		bug: "the Client takes its own repeat for a loss",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease locker.Lease) error {
				err := next.Release(ctx, lease)
				if unknown(err) {
					err = next.Release(ctx, lease)
				}
				return err
			}}
		},
		breaks: []string{
			"Unlock whose reply is lost returns nil, since its own repeat finds nothing",
		},
	},
	{
		bug: "the Client waits for the release, whatever ctx says",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(ctx context.Context, lease locker.Lease) error {
				err := next.Release(ctx, lease)
				time.Sleep(5 * time.Second)
				return err
			}}
		},
		breaks: []string{
			"Unlock of a lock that was taken away unnoticed matches ErrLost and leaves the next holder alone",
			"Unlock with a ctx that is already done, or with the lock's own, releases",
			"a refusal of Release is returned by Unlock at once",
			"a second Unlock returns the result of the first and leaves the next holder alone",
			"Do joins the errors of work and of the release, work's first",
		},
	},
	{
		bug: "the Client releases what is there",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease locker.Lease) error {
				err := r.Release(ctx, lease)
				r.Expire(lease.Key)
				return err
			}}
		},
		breaks: []string{
			"when Release fails, it does not say lost, and a repeat releases",
		},
	},
	{
		bug: "the Client hides a loss from Unlock",
		client: func(next locker.Locker) locker.Locker {
			return double{
				Locker: next,
				extend: func(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
					after, err := next.Extend(ctx, lease, ttl)
					if errors.Is(err, locker.ErrLost) {
						return after, errors.New("hidden")
					}
					return after, err
				},
				release: func(ctx context.Context, lease locker.Lease) error {
					if err := next.Release(ctx, lease); !errors.Is(err, locker.ErrLost) {
						return err
					}
					return nil
				},
			}
		},
		breaks: []string{
			"Unlock of a lock that was taken away unnoticed matches ErrLost and leaves the next holder alone",
			"a second Unlock returns the result of the first and leaves the next holder alone",
			"Do joins the errors of work and of the release, work's first",
		},
	},
	{
		bug: "the Client does not release",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, release: func(context.Context, locker.Lease) error { return nil }}
		},
		breaks: []string{
			"Lock and TryLock of a free lock succeed at once, and Unlock leaves nothing",
			"Lock waits for a lock that is held, and gets it soon after Unlock",
			"WithMaxHold ends the context with ErrLost, maximum hold, and Unlock frees the lock",
			"Unlock returns when its ctx ends, and goes on in the background until the lock is released",
			"Unlock with a ctx that is already done waits a second for a store that hangs, no longer",
			"many who Unlock at once get one result",
			"Do works under the lock and releases it, whether work fails or not",
			"Do releases the lock when work panics, and passes the panic on",
			"Do releases the lock when work calls runtime.Goexit",
			"Do whose ctx ends during work releases the lock",
		},
	},
}
