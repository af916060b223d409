package lockertest

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/locker"
)

var releaseDoubles = []broken{
	{
		bug: "Release does nothing",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(context.Context, locker.Lease) error { return nil }}
		},
		breaks: []string{
			"fences rise with every grant of a key, or all are 0",
			"Release by the holder frees the lock and leaves nothing",
			"a second Release matches ErrLost",
			"of many concurrent Releases exactly one succeeds",
			"when the store answers after ctx has ended, Acquire grants or leaves nothing",
		},
	},
	{
		bug: "Release of nothing succeeds",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease locker.Lease) error {
				if err := r.Release(ctx, lease); !errors.Is(err, locker.ErrLost) {
					return err
				}
				return nil
			}}
		},
		breaks: []string{
			"a second Release matches ErrLost",
			"Release of a lease that the store let end too soon matches ErrLost",
			"a stale Release matches ErrLost and leaves the lease of the next holder alone",
			"of many concurrent Releases exactly one succeeds",
			"when the reply to Release is lost, it does not say lost, and a repeat does",
		},
	},
	{
		bug: "Release always fails in the end",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease locker.Lease) error {
				_ = r.Release(ctx, lease)
				return permanentError{errors.New("no")}
			}}
		},
		breaks: []string{
			"Release by the holder frees the lock and leaves nothing",
		},
	},
}
