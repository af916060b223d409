package lockertest

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var extendDoubles = []broken{
	{
		bug: "Extend shortens the lease",
		locker: changed(func(r *reference) {
			expire := r.expire
			r.expire = func(key, token string, ttl time.Duration) (bool, error) {
				ok, err := expire(key, token, ttl)
				if ok {
					r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
				}
				return ok, err
			}
		}),
		breaks: []string{
			"Extend with a shorter ttl does not shorten the lease",
		},
	},
	{
		bug: "Extend returns a shorter life",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				started := time.Now()
				lease, err := r.Extend(ctx, lease, ttl)
				if err == nil {
					lease.Expires = contract.Until(started, ttl)
				}
				return lease, err
			}}
		},
		breaks: []string{
			"Extend with a shorter ttl does not shorten the lease",
		},
	},
	{
		bug: "Extend succeeds and does nothing",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, extend: func(_ context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				lease.Expires = contract.Until(time.Now(), ttl)
				return lease, nil
			}}
		},
		breaks: []string{
			"Extend after the key was deleted matches ErrLost and does not bring it back",
		},
	},
	{
		bug: "Extend leaves Expires alone",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				_, err := r.Extend(ctx, lease, ttl)
				return lease, err
			}}
		},
		breaks: []string{
			"Extend moves Expires to ttl minus the margin from now",
			"Extend and Release need only the Key and the Token of a lease",
			"when the reply to Extend is lost, the error does not match ErrLost, and a second Extend moves Expires forward",
			"a Client renews a lock for as long as it is held",
			"Extend makes a lock last longer at once, and never shorter",
		},
	},
	{
		bug: "Extend counts from the old end",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				after, err := r.Extend(ctx, lease, ttl)
				if err == nil {
					after.Expires = lease.Expires.Add(ttl)
				}
				return after, err
			}}
		},
		breaks: []string{
			"Extend moves Expires to ttl minus the margin from now",
			"an extended lease lasts until its new Expires, and no longer",
			"Extend makes a lock last longer at once, and never shorter",
		},
	},
	{
		bug: "the Locker knows only its own grants",
		locker: func(r *reference) locker.Locker {
			var known sync.Map
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
					lease, err := r.Acquire(ctx, req)
					known.Store(lease.Granted, true)
					return lease, err
				},
				extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
					if _, ok := known.Load(lease.Granted); !ok {
						return lease, locker.Lost(lease)
					}
					return r.Extend(ctx, lease, ttl)
				},
			}
		},
		breaks: []string{
			"Extend and Release need only the Key and the Token of a lease",
		},
	},
	{
		bug: "Extend removes the expiry",
		locker: changed(func(r *reference) {
			expire := r.expire
			r.expire = func(key, token string, ttl time.Duration) (bool, error) {
				ok, err := expire(key, token, ttl)
				if ok {
					r.entries[key] = entry{token: token, expires: time.Now().Add(time.Hour)}
				}
				return ok, err
			}
		}),
		breaks: []string{
			"an attempt that finds the lock held leaves the lease of the holder alone",
			"locks of different keys do not affect each other",
			"an extended lease lasts until its new Expires, and no longer",
			"a slow answer does not make an extension longer",
		},
	},
}
