package lockertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

var unknownDoubles = []broken{
	{
		bug: "a failure says held",
		locker: onLocker(badErrors(func(op Op, _ string, err error) error {
			if op == Acquire && unknown(err) {
				return &locker.HeldError{}
			}
			return err
		})),
		breaks: []string{
			"when the store fails, Acquire says neither held nor lost, and nothing is left",
			"when the reply to Acquire is lost, it says neither held nor lost, and what was stored is removed",
		},
	},
	{
		bug: "a failure says lost",
		locker: onLocker(badErrors(func(op Op, _ string, err error) error {
			if op != Acquire && unknown(err) {
				return &locker.LostError{}
			}
			return err
		})),
		breaks: []string{
			"a Watch that the store refuses returns the refusal, or says that it is unsupported",
		},
	},
	{
		bug: "a failure drops its cause",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if unknown(err) && !errors.Is(err, errors.ErrUnsupported) {
				return errors.New("failed")
			}
			return err
		})),
		breaks: []string{
			"a Watch that the store refuses returns the refusal, or says that it is unsupported",
		},
	},
	{
		bug:    "nothing is cleaned up",
		locker: changed(func(r *reference) { r.clean = func(context.Context, locker.Request) {} }),
		breaks: []string{
			"when the reply to Acquire is lost, it says neither held nor lost, and what was stored is removed",
			"when the store fails, Lock and TryLock return an error that is not ErrHeld, and nothing is left",
		},
	},
	{
		bug: "the clean-up is sent once",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req locker.Request) {
				go func() { _ = r.cleanOnce(context.WithoutCancel(ctx), req) }()
			}
		}),
		breaks: []string{
			"a clean-up that fails or hangs is repeated until it is answered",
			"a request that lands after its attempt has failed is removed too",
		},
	},
	{
		bug: "the clean-up is not confirmed",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req locker.Request) {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), req.TTL)
				go func() {
					defer cancel()
					_ = cleanup.Repeat(ctx, func(ctx context.Context) error { return r.cleanOnce(ctx, req) })
				}()
			}
		}),
		breaks: []string{
			"a request that lands after its attempt has failed is removed too",
		},
	},
	{
		bug: "the clean-up runs under the caller's ctx",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req locker.Request) {
				_ = cleanup.Repeat(ctx, func(ctx context.Context) error { return r.cleanOnce(ctx, req) })
			}
		}),
		breaks: []string{
			"when ctx ends while the store hangs, Acquire returns its error soon and nothing is left",
			"when ctx ends while the store hangs, the clean-up has a context of its own",
			"when the store fails, the error matches that of the store",
			"when ctx ends while the store hangs, Lock and TryLock return at once, not with ErrHeld, and nothing is left",
		},
	},
	{
		bug: "the clean-up removes whatever is there",
		locker: changed(func(r *reference) {
			r.clean = func(ctx context.Context, req locker.Request) {
				go func() {
					_ = r.call(context.WithoutCancel(ctx), Release, func() error {
						delete(r.entries, req.Key)
						return nil
					})
				}()
			}
		}),
		breaks: []string{
			"when the store fails, a lock that someone has is not said to be held by them, and they keep it",
			"a clean-up that fails or hangs is repeated until it is answered",
			"the clean-up of one attempt never removes the grant of the next",
		},
	},
	{
		bug: "one token for all attempts on a key",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req locker.Request) (locker.Lease, error) {
				req.Token = "the token of this process"
				return r.Acquire(ctx, req)
			}}
		},
		breaks: []string{
			"nothing is sent for a bad request",
		},
	},
	{
		bug: "a failed extension gives the lease up",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, extend: func(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
				after, err := r.Extend(ctx, lease, ttl)
				if unknown(err) {
					_ = r.Release(context.WithoutCancel(ctx), lease)
				}
				return after, err
			}}
		},
		breaks: []string{
			"when Extend fails, it does not say lost, the lease lasts and a repeat works",
			"when the reply to Extend is lost, it does not say lost, and a repeat moves Expires forward",
		},
	},
	{
		bug: "a lease whose Release failed is forgotten",
		locker: func(r *reference) locker.Locker {
			var failed sync.Map
			return double{Locker: r, release: func(ctx context.Context, lease locker.Lease) error {
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
			"Extend and Release with a ctx that is already done leave the lease alone and return the ctx's error",
			"when ctx ends while the store hangs, Release returns its error and can be repeated",
			"when Release fails, it does not say lost, and a repeat releases",
			"what the store refuses for good is returned at once as a refusal, and changes nothing",
			"Unlock whose request is lost repeats it",
			"Unlock whose ctx has ended leaves a lock that the next one gets, and keeps",
		},
	},
	{
		bug: "an unknown Release succeeds",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease locker.Lease) error {
				if err := r.Release(ctx, lease); errors.Is(err, locker.ErrLost) {
					return err
				}
				return nil
			}}
		},
		breaks: []string{
			"when the store fails, the error matches that of the store",
			"when the reply to Release is lost, it does not say lost, and a repeat does",
		},
	},
	{
		bug: "refusals are tried again",
		locker: func(r *reference) locker.Locker {
			again := func(do func() error) {
				for range 3 {
					if err := do(); !isPermanent(err) {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req locker.Request) (lease locker.Lease, err error) {
					again(func() error { lease, err = r.Acquire(ctx, req); return err })
					return lease, err
				},
				release: func(ctx context.Context, lease locker.Lease) (err error) {
					again(func() error { err = r.Release(ctx, lease); return err })
					return err
				},
			}
		},
		breaks: []string{
			"what the store refuses for good is returned at once as a refusal, and changes nothing",
			"what the store refuses for good is returned by Lock at once as a refusal",
			"a refusal of Release is returned by Unlock at once",
		},
	},
}
