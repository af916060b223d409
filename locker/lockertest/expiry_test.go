package lockertest

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var expiryDoubles = []broken{
	{
		bug: "a lease is for ever",
		locker: changed(func(r *reference) {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) { return set(key, token, time.Hour) }
		}),
		breaks: []string{
			"a lease lasts until its Expires, and soon after that the lock is free",
		},
	},
	{
		bug: "a lease lives for less than its ttl",
		locker: changed(func(r *reference) {
			set, expire := r.set, r.expire
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) { return set(key, token, ttl*9/10) }
			r.expire = func(key, token string, ttl time.Duration) (bool, error) { return expire(key, token, ttl*9/10) }
		}),
		breaks: []string{
			"when the ctx given to Lock ends, the context of the lock ends, and the lease ends in its time",
		},
	},
	{
		bug:    "counts from the reply",
		locker: changed(func(r *reference) { r.started = func(time.Time) time.Time { return time.Now() } }),
		breaks: []string{
			"a slow answer does not make the lease longer",
			"a grant whose answer comes after its end is not granted",
			"a slow answer does not make an extension longer",
		},
	},
	{
		bug:    "counts from before the call",
		locker: changed(func(r *reference) { r.started = func(call time.Time) time.Time { return call.Add(-time.Second) } }),
		breaks: []string{
			"Granted is during the call, and Expires is at most ttl minus the margin after Granted",
			"the longest and the shortest ttl are granted",
			"without renewal a lock is lost at its Expires",
		},
	},
	{
		bug: "Expires has no margin",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				lease, err := r.Acquire(ctx, req)
				lease.Expires = lease.Granted.Add(req.TTL)
				return lease, err
			}}
		},
		breaks: []string{
			"Granted is during the call, and Expires is at most ttl minus the margin after Granted",
		},
	},
	{
		bug:    "Expires is zero",
		locker: badLease(func(l *contract.Lease) { l.Expires = time.Time{} }),
		breaks: []string{
			"Granted is during the call, and Expires is at most ttl minus the margin after Granted",
		},
	},
	{
		bug:    "the lease has another token",
		locker: badLease(func(l *contract.Lease) { l.Token = rand.Text() }),
		breaks: []string{
			"the token is in nothing that a request or a lease prints, logs or marshals",
		},
	},
	{
		bug:    "the lease has no owner",
		locker: badLease(func(l *contract.Lease) { l.Owner = "" }),
		breaks: []string{
			"a free lock is granted, with the key, the token and the owner of the request",
		},
	},
	{
		bug: "numbers are counted by releases",
		locker: func(r *reference) locker.Locker {
			var mu sync.Mutex
			released := map[string]uint64{}
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
					lease, err := r.Acquire(ctx, req)
					mu.Lock()
					defer mu.Unlock()
					lease.Fence = released[req.Key] + 1
					return lease, err
				},
				release: func(ctx context.Context, lease contract.Lease) error {
					err := r.Release(ctx, lease)
					mu.Lock()
					defer mu.Unlock()
					released[lease.Key]++
					return err
				},
			}
		},
		breaks: []string{"the numbers of the grants of a key rise, or are all 0"},
	},
	{
		bug:    "all numbers are 7",
		locker: badLease(func(l *contract.Lease) { l.Fence = 7 }),
		breaks: []string{
			"the numbers of the grants of a key rise, or are all 0",
		},
	},
	{
		bug: "a grant whose answer comes after its end is granted",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				lease, err := r.Acquire(ctx, req)
				if errors.Is(err, errTooLate) {
					return contract.Lease{Key: req.Key, Token: req.Token}, nil
				}
				return lease, err
			}}
		},
		breaks: []string{
			"a grant whose answer comes after its end is not granted",
		},
	},
}
