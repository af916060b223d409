package lockertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

var heldDoubles = []broken{
	{
		bug: "a refusal is an error of its own",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if errors.Is(err, locker.ErrHeld) {
				return errors.New("busy")
			}
			return err
		})),
		breaks: []string{
			"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
	{
		bug: "a refusal matches ErrLost too",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if errors.Is(err, locker.ErrHeld) {
				return fmt.Errorf("%w: %w", locker.ErrLost, err)
			}
			return err
		})),
		breaks: []string{
			"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
	{
		bug: "a refusal is ErrHeld, without more",
		locker: onLocker(badErrors(func(_ Op, _ string, err error) error {
			if errors.Is(err, locker.ErrHeld) {
				return locker.ErrHeld
			}
			return err
		})),
		breaks: []string{
			"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
	{
		bug: "Left is the ttl asked for",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: func(ctx context.Context, req locker.Request) (locker.Lease, error) {
				return changeHeld(r, func(held *locker.HeldError) { held.Left = req.TTL })(ctx, req)
			}}
		},
		breaks: []string{
			"a held lock is refused with a *HeldError that matches ErrHeld and nothing else",
			"a refusal does not move the end of the holder's lease",
			"the clean-up of one attempt never removes the grant of the next",
			"TryLock of a held lock returns at once with ErrHeld",
		},
	},
	{
		bug: "Left is told by a Locker said not to", noLeft: true,
		breaks: []string{
			"a refusal leaves the lease of the holder alone",
			"an owner that asks with a new token is refused like anyone",
			"locks of different keys have nothing to do with each other",
			"of many concurrent attempts exactly one is granted",
			"a key may be 512 bytes long and hold any text but a NUL",
			"when Extend fails, it does not say lost, the lease lasts and a repeat works",
		},
	},
	{
		bug: "every value is foreign",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: changeHeld(r, func(held *locker.HeldError) { held.Foreign = true })}
		},
		breaks: []string{
			"an owner that asks with a new token is refused like anyone",
		},
	},
	{
		bug: "no value is foreign",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: changeHeld(r, func(held *locker.HeldError) { held.Foreign = false })}
		},
		breaks: []string{
			"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
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
			"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
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
			"a value of another type matches ErrForeignKey and not ErrHeld, and stays",
			"a lease whose key was overwritten can be neither extended nor released, and what is there stays",
			"a value of another type ends the wait with ErrForeignKey",
		},
	},
	{
		bug: "a refusal gives the holder the ttl",
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
			"a held lock is refused with a *HeldError that matches ErrHeld and nothing else",
			"a refusal does not move the end of the holder's lease",
			"a lease lasts until its Expires, and then the lock is free for the next",
			"a slow answer does not make the lease longer",
			"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
			"an extension that lands after the lock was lost leaves nothing and nobody's lease longer",
		},
	},
	{
		bug: "a refusal removes the holder's lease",
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
			"a value without expiry is a *HeldError that matches ErrForeignKey too, and stays",
		},
	},
}
