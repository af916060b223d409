package lockertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var unknownDoubles = []broken{
	{
		bug: "every error matches ErrHeld",
		locker: onLocker(badErrors(func(op Op, _ string, err error) error {
			if op == Acquire && unknown(err) {
				return &locker.HeldError{}
			}
			return err
		})),
		breaks: []string{
			"when the store fails, the error of Acquire matches neither ErrHeld nor ErrLost, and nothing is left",
			"when the reply to Acquire is lost, the error matches neither ErrHeld nor ErrLost, and the grant is removed",
		},
	},
	{
		bug: "every error matches ErrLost",
		locker: onLocker(badErrors(func(op Op, _ string, err error) error {
			if op != Acquire && unknown(err) {
				return &locker.LostError{}
			}
			return err
		})),
		breaks: []string{
			"Watch returns a permanent error of the store, or matches errors.ErrUnsupported",
		},
	},
	{
		bug: "an error drops its cause",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if unknown(err) && !errors.Is(err, errors.ErrUnsupported) {
				return errors.New("failed")
			}
			return err
		})),
		breaks: []string{
			"Watch returns a permanent error of the store, or matches errors.ErrUnsupported",
		},
	},
	{
		bug:    "nothing is cleaned up",
		locker: changed(func(r *reference) { r.clean = func(context.Context, contract.Request) {} }),
		breaks: []string{
			"when the reply to Acquire is lost, the error matches neither ErrHeld nor ErrLost, and the grant is removed",
			"when the store fails, Lock and TryLock return an error that is not ErrHeld, and nothing is left",
		},
	},
	{
		bug: "the cleanup is sent once",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req contract.Request) {
				go func() { _ = r.cleanOnce(context.WithoutCancel(ctx), req) }()
			}
		}),
		breaks: []string{
			"a cleanup that fails or hangs is repeated until it is answered",
			"a grant that the store makes after its attempt has failed is removed too",
		},
	},
	{
		bug: "the cleanup is not confirmed",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req contract.Request) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), req.TTL)
				go func() {
					defer cancel()
					_ = cleanup.Repeat(ctx, func(ctx context.Context) error { return r.cleanOnce(ctx, req) })
				}()
			}
		}),
		breaks: []string{
			"a grant that the store makes after its attempt has failed is removed too",
		},
	},
	{
		bug: "the cleanup runs under the caller's ctx",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req contract.Request) {
				_ = cleanup.Repeat(ctx, func(ctx context.Context) error { return r.cleanOnce(ctx, req) })
			}
		}),
		breaks: []string{
			"when ctx ends while the store hangs, Acquire soon returns the error of the ctx, and nothing is left",
			"when ctx ends while the store hangs, the cleanup has a context of its own",
			"when the store fails, the error matches the error of the store",
			"when ctx ends while the store hangs, Lock and TryLock return at once, not with ErrHeld, and nothing is left",
		},
	},
	{
		bug: "the cleanup removes any value",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req contract.Request) {
				go func() {
					_ = r.call(context.WithoutCancel(ctx), Release, func() error {
						delete(r.entries, req.Key)
						return nil
					})
				}()
			}
		}),
		breaks: []string{
			"when the store fails, a held lock is not reported as held, and its holder keeps it",
			"a cleanup that fails or hangs is repeated until it is answered",
			"the cleanup of one attempt never removes the grant of the next",
		},
	},
	{
		bug: "one token for all attempts on a key",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				req.Token = "the token of this process"
				return r.Acquire(ctx, req)
			}}
		},
		breaks: []string{
			"nothing is sent for a bad request",
		},
	},
	{
		bug: "a failed Extend releases the lease",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				after, err := r.Extend(ctx, lease, ttl)
				if unknown(err) {
					_ = r.Release(context.WithoutCancel(ctx), lease)
				}
				return after, err
			}}
		},
		breaks: []string{
			"when Extend fails, the error does not match ErrLost, the lease lasts, and a second Extend works",
			"when the reply to Extend is lost, the error does not match ErrLost, and a second Extend moves Expires forward",
		},
	},
	{
		bug: "a lease whose Release failed is forgotten",
		locker: func(r *reference) locker.Locker {
			var failed sync.Map
			return double{Locker: r, release: func(ctx context.Context, lease contract.Lease) error {
				if _, ok := failed.Load(lease.Token); ok {
					return locker.Lost(lease)
				}
				err := r.Release(ctx, lease)
				if unknown(err) {
					failed.Store(lease.Token, true)
				}
				return err
			}}
		},
		breaks: []string{
			"Extend and Release with a ctx that is done return the error of the ctx and leave the lease alone",
			"when ctx ends while the store hangs, Release returns the error of the ctx and can be repeated",
			"when Release fails, the error does not match ErrLost, and a second Release frees the lock",
			"a permanent error of the store is returned at once, is permanent, and changes nothing",
			"Unlock whose request is lost sends it again",
			"after an Unlock whose ctx has ended, the next holder gets the lock and keeps it",
		},
	},
	{
		bug: "an unknown Release succeeds",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease contract.Lease) error {
				if err := r.Release(ctx, lease); errors.Is(err, locker.ErrLost) {
					return err
				}
				return nil
			}}
		},
		breaks: []string{
			"when the store fails, the error matches the error of the store",
			"when the reply to Release is lost, the error does not match ErrLost, and the error of a second Release does",
		},
	},
	{
		bug: "permanent errors are tried again",
		locker: func(r *reference) locker.Locker {
			again := func(do func() error) {
				for range 3 {
					if err := do(); !outcome.Permanent(err) {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req contract.Request) (lease contract.Lease, err error) {
					again(func() error { lease, err = r.Acquire(ctx, req); return err })
					return lease, err
				},
				release: func(ctx context.Context, lease contract.Lease) (err error) {
					again(func() error { err = r.Release(ctx, lease); return err })
					return err
				},
			}
		},
		breaks: []string{
			"a permanent error of the store is returned at once, is permanent, and changes nothing",
			"Lock returns a permanent error of the store at once, as a permanent error",
			"Unlock returns a permanent error of Release at once",
		},
	},
}
