package lockertest

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var transferDoubles = []broken{
	{
		bug: "a request from the token of a hold is one like any other",
		locker: func(r *reference) locker.Locker {
			r.move = func(key, _, token string, ttl time.Duration) (bool, entry, error) { return r.set(key, token, ttl) }
			return r
		},
		breaks: []string{
			"a request from the token of a hold takes its place, with a greater number or none",
			"a request from a token that has no hold is held, also if the lock is free, and takes nothing",
			"Transfer ends the hold, and Resume by another Client goes on, once",
			"a Ticket that nobody resumes ends with its ttl, and is of no use then",
		},
	},
	{
		bug: "a request from any token takes the place of the hold",
		locker: func(r *reference) locker.Locker {
			move := r.move
			r.move = func(key, _, token string, ttl time.Duration) (bool, entry, error) {
				return move(key, r.entries[key].token, token, ttl)
			}
			return r
		},
		breaks: []string{
			"a request from a token that has no hold is held, also if the lock is free, and takes nothing",
			"Transfer ends the hold, and Resume by another Client goes on, once",
		},
	},
	{
		bug: "a hold moves although the harness has NoTransfer", noTransfer: true,
		breaks: []string{
			"a request from the token of a hold takes its place, with a greater number or none",
			"Transfer of a lock that can't be resumed fails for good, and the lock is held as before",
		},
	},
	{
		bug: "the hold keeps its token",
		locker: func(r *reference) locker.Locker {
			move := r.move
			r.move = func(key, from, _ string, ttl time.Duration) (bool, entry, error) { return move(key, from, from, ttl) }
			return r
		},
		breaks: []string{"a request from the token of a hold takes its place, with a greater number or none"},
	},
	{
		bug: "Resume does not say what it takes over",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, transfer: func(ctx context.Context, _ string, req contract.Request) (contract.Lease, error) {
				return next.Acquire(ctx, req)
			}}
		},
		breaks: []string{
			"Transfer ends the hold, and Resume by another Client goes on, once",
			"a Ticket that nobody resumes ends with its ttl, and is of no use then",
		},
	},
	{
		bug: "Resume cleans up nothing",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, transfer: func(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
				nothing := func(context.Context, contract.Request) {}
				return r.ask(ctx, req, nothing, func() (bool, entry, error) { return r.move(req.Key, from, req.Token, req.TTL) })
			}}
		},
		breaks: []string{"when the answer to Resume is lost, nothing is left"},
	},
}
