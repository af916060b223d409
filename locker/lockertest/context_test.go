package lockertest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var contextDoubles = []broken{
	{
		bug: "ctx is ignored",
		locker: func(r *reference) locker.Locker {
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
					return r.Acquire(context.WithoutCancel(ctx), req)
				},
				extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
					return r.Extend(context.WithoutCancel(ctx), lease, ttl)
				},
				release: func(ctx context.Context, lease contract.Lease) error {
					return r.Release(context.WithoutCancel(ctx), lease)
				},
			}
		},
		breaks: []string{
			"Acquire with a ctx that is done returns the error of the ctx and grants nothing",
			"Extend and Release with a ctx that is done return the error of the ctx and leave the lease alone",
			"when ctx ends while the store hangs, Acquire soon returns the error of the ctx, and nothing is left",
			"when ctx ends while the store hangs, the cleanup has a context of its own",
			"when ctx ends while the store hangs, Extend returns the error of the ctx and the lease lasts",
			"when ctx ends while the store hangs, Release returns the error of the ctx and can be repeated",
		},
	},
	{
		bug: "a call returns when ctx ends, and its request goes on",
		locker: func(r *reference) locker.Locker {
			late := func(ctx context.Context) context.Context {
				ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
				time.AfterFunc(drained/2, cancel)
				return ctx
			}
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
					return r.Acquire(late(ctx), req)
				},
				extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
					return r.Extend(late(ctx), lease, ttl)
				},
				release: func(ctx context.Context, lease contract.Lease) error {
					return r.Release(late(ctx), lease)
				},
			}
		},
		breaks: []string{
			"Acquire with a ctx that is done returns the error of the ctx and grants nothing",
			"when ctx ends while the store hangs, Extend returns the error of the ctx and the lease lasts",
		},
	},
	{
		bug: "a grant after the end of ctx is dropped",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				lease, err := r.Acquire(ctx, req)
				if ctx.Err() != nil {
					return contract.Lease{}, fault("acquire", req.Key, ctx.Err())
				}
				return lease, err
			}}
		},
		breaks: []string{
			"when the store answers after ctx has ended, Acquire grants the lock or leaves nothing",
			"when ctx ends while the store hangs and ignores it, Lock and TryLock return at once, not with ErrHeld, and nothing is left",
		},
	},
	{
		bug: "the end of ctx is reported as held",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if isCtx(err) {
				return &locker.HeldError{}
			}
			return err
		})),
		breaks: []string{
			"Acquire with a ctx that is done returns the error of the ctx and grants nothing",
		},
	},
}
