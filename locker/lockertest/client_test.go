package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// These bugs are in the Client, by its middleware.

var clientDoubles = []broken{
	{
		bug:    "a lease that admits no other says that it does",
		locker: badLease(func(l *contract.Lease) { l.Room = -1 }),
		breaks: []string{"a Lock under the context of a hold of the same key is granted, or fails at once as a deadlock"},
	},
	{
		bug: "the Client does not wait",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				ctx, cancel := context.WithTimeout(ctx, tick)
				defer cancel()
				return next.Acquire(ctx, req)
			}}
		},
		breaks: []string{
			"Lock waits for a lock that is held, and gets it soon after Unlock",
			"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
			"a waiter without a wake-up gets the lock within the polling cap",
			"a Watch that hangs costs the wake-ups and not the wait",
			"WithWait ends the wait with an error that matches ErrWaitLimit and ErrHeld",
			"concurrent holders of one key exclude each other, and no update is lost",
		},
	},
	{
		bug: "the Client sleeps too long",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				lease, err := next.Acquire(ctx, req)
				time.Sleep(time.Second)
				return lease, err
			}}
		},
		breaks: []string{
			"without renewal a lock is lost at its Expires",
		},
	},
	{
		bug: "the Client ignores ctx",
		client: func(next locker.Locker) locker.Locker {
			return double{Locker: next, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				free, cancel := context.WithTimeout(context.WithoutCancel(ctx), drained/2)
				defer cancel()
				return next.Acquire(free, req)
			}}
		},
		breaks: []string{
			"when ctx ends while the store hangs, Lock and TryLock return at once, not with ErrHeld, and nothing is left",
			"when ctx ends while the store hangs and ignores it, Lock and TryLock return at once, not with ErrHeld, and nothing is left",
			"when the store answers after ctx has ended, Lock and TryLock have returned, and nothing is left",
			"when ctx ends during the wait, Lock returns at once, and the error matches the error of the ctx, its cause, and ErrHeld",
		},
	},
	{
		bug:     "the Client makes one attempt",
		options: []locker.ClientOption{locker.WithAttempts(1)},
		breaks: []string{
			"under WithWait, Lock outlasts a store that fails, and gets the lock when it answers again",
		},
	},
	{
		bug:     "the Client sleeps for the ttl if the lock is held",
		options: []locker.ClientOption{locker.WithBackoff(func(int, float64) time.Duration { return 15 * time.Second })},
		breaks: []string{
			"a waiter without a wake-up gets the lock within the polling cap",
			"a Watch that hangs costs the wake-ups and not the wait",
			"Lock waits for a foreign value without expiry until it is gone",
		},
	},
	{
		bug: "the Client reports unknown as held",
		client: badErrors(func(op Op, _ string, err error) error {
			if op == Acquire && unknown(err) {
				return &locker.HeldError{}
			}
			return err
		}),
		breaks: []string{
			"when the store fails, Lock and TryLock return an error that is not ErrHeld, and nothing is left",
			"Lock returns a permanent error of the store at once, as a permanent error",
			"Lock with a bad key or ttl returns a permanent error that names it, at once",
			"when the store answers after ctx has ended, Lock and TryLock have returned, and nothing is left",
			"a wait limit that is reached while the store hangs does not match ErrHeld, since the outcome is unknown",
		},
	},
	{
		bug: "the Client drops the cause of the wait's end",
		client: badErrors(func(op Op, _ string, err error) error {
			if op != Acquire {
				return err
			}
			return errors.New("not locked")
		}),
		breaks: []string{
			"a lock that a Client holds is held for everyone else",
			"TryLock of a held lock returns at once with ErrHeld",
			"Lock with a bad key or ttl returns a permanent error that names it, at once",
		},
	},
	{
		bug: "the Client drops that the lock was held",
		client: badErrors(func(op Op, _ string, err error) error {
			switch {
			case op == Acquire && errors.Is(err, locker.ErrWaitLimit):
				return locker.ErrWaitLimit
			case op == Acquire && errors.Is(err, context.Canceled):
				return context.Canceled
			}
			return err
		}),
		breaks: []string{
			"WithWait ends the wait with an error that matches ErrWaitLimit and ErrHeld",
			"a wait limit that is reached while the store fails matches ErrWaitLimit and the error of the store, and not ErrHeld",
			"when ctx ends during the wait, Lock returns at once, and the error matches the error of the ctx, its cause, and ErrHeld",
		},
	},
}
