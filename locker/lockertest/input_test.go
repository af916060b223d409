package lockertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var inputDoubles = []broken{
	{
		bug: "requests are not validated",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: r.send, extend: r.sendExtend}
		},
		breaks: []string{
			"nothing is sent for a bad request",
			"Extend with a bad ttl is a permanent error that names it, and leaves the lease alone",
			"nothing is sent for an Extend with a bad ttl",
			"nothing is sent for an Extend or Release of a bad lease, or for a Watch of a bad key",
		},
	},
	{
		bug: "the request of a Transfer is not validated",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, transfer: func(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
				if from == "" {
					return r.Transfer(ctx, from, req)
				}
				return r.sendMove(ctx, from, req)
			}}
		},
		breaks: []string{"nothing is sent for a bad request"},
	},
	{
		bug: "a Transfer from no token is sent",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, transfer: func(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
				if from == "" {
					return r.sendMove(ctx, from, req)
				}
				return r.Transfer(ctx, from, req)
			}}
		},
		breaks: []string{"nothing is sent for a bad request"},
	},
	{
		bug:    "a lease is not validated by Release",
		locker: func(r *reference) locker.Locker { return double{Locker: r, release: r.sendRelease} },
		breaks: []string{"nothing is sent for an Extend or Release of a bad lease, or for a Watch of a bad key"},
	},
	{
		bug:    "a key is not validated by Watch",
		locker: func(r *reference) locker.Locker { return double{Locker: r, watch: r.sendWatch} },
		breaks: []string{"nothing is sent for an Extend or Release of a bad lease, or for a Watch of a bad key"},
	},
	{
		bug: "requests are validated after they are sent",
		locker: func(r *reference) locker.Locker {
			return double{
				Locker: r,
				acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
					lease, err := r.send(ctx, req)
					if bad := req.Validate(); bad != nil {
						return contract.Lease{}, bad
					}
					return lease, err
				},
				extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
					after, err := r.sendExtend(ctx, lease, ttl)
					if bad := contract.ValidateTTL(ttl); bad != nil {
						return lease, fault("extend", lease.Key, bad)
					}
					return after, err
				},
			}
		},
		breaks: []string{
			"a bad request is a permanent error that names the value and the limit",
			"nothing is sent for a bad request",
			"nothing is sent for an Extend with a bad ttl",
		},
	},
	{
		bug: "errors do not name the value",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if outcome.Permanent(err) {
				return permanentError{errors.New("bad input")}
			}
			return err
		})),
		breaks: []string{
			"a bad request is a permanent error that names the value and the limit",
			"Extend with a bad ttl is a permanent error that names it, and leaves the lease alone",
		},
	},
	{
		bug: "long ttls fail",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				if req.TTL == maxTTL {
					return contract.Lease{}, fault("acquire", req.Key, ttlError(req.TTL, maxTTL))
				}
				return r.Acquire(ctx, req)
			}}
		},
		breaks: []string{
			"the longest and the shortest ttl are granted",
		},
	},
	{
		bug:    "errors contain the token",
		locker: onLocker(badErrors(func(_ Op, token string, err error) error { return fmt.Errorf("%s: %w", token, err) })),
		breaks: []string{
			"the token is in no error",
		},
	},
	{
		bug:    "the owner contains the token",
		locker: badLease(func(l *contract.Lease) { l.Owner = "owner of " + l.Token }),
		breaks: []string{
			"a free lock is granted, with the key, the token and the owner of the request",
			"the token is in nothing that a request or a lease prints, logs or marshals",
			"the token is in nothing that a held Lock or its context prints, logs or marshals",
		},
	},
}
