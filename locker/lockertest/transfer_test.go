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
		bug: "a lease that has ended is taken over from the next holder",
		locker: func(r *reference) locker.Locker {
			set, move, was := r.set, r.move, map[string]bool{}
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				granted, present, err := set(key, token, ttl)
				was[token] = was[token] || granted
				return granted, present, err
			}
			r.move = func(key, from, token string, ttl time.Duration) (bool, entry, error) {
				granted, present, err := move(key, from, token, ttl)
				if _, found := r.live(key); !granted && err == nil && found && was[from] {
					r.entries[key] = entry{token: token, expires: time.Now().Add(ttl)}
					granted = true
				}
				if granted {
					was[from], was[token] = false, true
				}
				return granted, present, err
			}
			return r
		},
		breaks: []string{"a request from a token that has no hold is held, also if the lock is free, and takes nothing"},
	},
	{
		bug: "Transfer looks for the hold, and moves it then",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, transfer: func(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
				r.mu.Lock()
				e, found := r.live(req.Key)
				r.mu.Unlock()
				time.Sleep(time.Millisecond)
				if found && e.token == from {
					r.put(req.Key, e)
				}
				return r.Transfer(ctx, from, req)
			}}
		},
		breaks: []string{"of concurrent Transfers from one hold at most one is granted"},
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
