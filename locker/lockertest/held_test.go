package lockertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var heldDoubles = []broken{
	{
		bug: "the error of a held lock does not match ErrHeld",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if errors.Is(err, locker.ErrHeld) {
				return errors.New("busy")
			}
			return err
		})),
		breaks: []string{
			"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
	{
		bug: "the error of a held lock matches ErrLost too",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if errors.Is(err, locker.ErrHeld) {
				return fmt.Errorf("%w: %w", locker.ErrLost, err)
			}
			return err
		})),
		breaks: []string{
			"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
	{
		bug: "the error of a held lock is ErrHeld itself",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if errors.Is(err, locker.ErrHeld) {
				return locker.ErrHeld
			}
			return err
		})),
		breaks: []string{
			"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
	{
		bug: "Left is the ttl of the request",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				return changeHeld(r, func(held *locker.HeldError) { held.Left = req.TTL })(ctx, req)
			}}
		},
		breaks: []string{
			"Acquire of a held lock returns a *HeldError that matches ErrHeld and no other error",
			"an attempt that finds the lock held does not move the end of the holder's lease",
			"the cleanup of one attempt never removes the grant of the next",
			"TryLock of a held lock returns at once with ErrHeld",
		},
	},
	{
		bug: "Left is set although the harness has NoLeft", noLeft: true,
		breaks: []string{
			"an attempt that finds the lock held leaves the lease of the holder alone",
			"a lock is held for its own owner too, if the token is new",
			"locks of different keys do not affect each other",
			"of concurrent attempts exactly one is granted",
			"a key may be 512 bytes long and hold any text but a NUL",
			"when Extend fails, the error does not match ErrLost, the lease lasts, and a second Extend works",
		},
	},
	{
		bug: "every value is foreign",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: changeHeld(r, func(held *locker.HeldError) { held.Foreign = true })}
		},
		breaks: []string{
			"a lock is held for its own owner too, if the token is new",
		},
	},
	{
		bug: "no value is foreign",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: changeHeld(r, func(held *locker.HeldError) { held.Foreign = false })}
		},
		breaks: []string{
			"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
	{
		bug: "foreign values are overwritten",
		locker: changed(func(r *reference) {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				if e, found := r.live(key); found && e.expires.IsZero() {
					delete(r.entries, key)
				}
				return set(key, token, ttl)
			}
		}),
		breaks: []string{
			"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
			"Lock waits for a foreign value without expiry until it is gone",
		},
	},
	{
		bug: "a value of another type is a lease",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if errors.Is(err, locker.ErrForeignKey) && !errors.Is(err, locker.ErrHeld) {
				return &locker.HeldError{}
			}
			return err
		})),
		breaks: []string{
			"a value of another type is an error that matches ErrForeignKey and not ErrHeld, and stays",
			"Extend and Release of a lease whose key was overwritten fail, and the new value stays",
			"a value of another type ends the wait with ErrForeignKey",
		},
	},
	{
		bug: "an attempt gives the holder the ttl",
		locker: changed(func(r *reference) {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				granted, present, err := set(key, token, ttl)
				if err == nil && !granted && !present.expires.IsZero() {
					r.entries[key] = entry{token: present.token, expires: time.Now().Add(ttl)}
				}
				return granted, present, err
			}
		}),
		breaks: []string{
			"Acquire of a held lock returns a *HeldError that matches ErrHeld and no other error",
			"an attempt that finds the lock held does not move the end of the holder's lease",
			"a lease lasts until its Expires, and soon after that the lock is free",
			"a slow answer does not make the lease longer",
			"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
			"a renewal that arrives after the lock was lost leaves nothing, and makes no lease longer",
		},
	},
	{
		bug: "an attempt removes the lease of the holder",
		locker: changed(func(r *reference) {
			set := r.set
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				granted, present, err := set(key, token, ttl)
				if err == nil && !granted {
					delete(r.entries, key)
				}
				return granted, present, err
			}
		}),
		breaks: []string{
			"a value without expiry is held, with a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
}
