package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

const (
	evictEnds   = "when an operator evicts a hold, the context ends with ErrLost, evicted, no later than Expires, and names the operator"
	evictUnlock = "Unlock of a lock that an operator has evicted unnoticed matches ErrLost, evicted, and names the operator"
	evictHeld   = "an evicted lock is held until its lease would have ended, and the error names the operator"
	evictOther  = "a lock that is lost because another hold was evicted is not told as evicted"
)

var evictDoubles = []broken{
	{
		bug: "an eviction is told as any other loss", breaks: []string{evictEnds, evictUnlock},
		locker: badLoss(func(lost *locker.LostError) { lost.Reason, lost.Err = locker.LostStolen, nil }),
	},
	{
		bug: "an eviction is told without the operator", breaks: []string{evictEnds, evictUnlock},
		locker: badLoss(func(lost *locker.LostError) { lost.Err = nil }),
	},
	{
		bug: "every eviction is that of one operator", breaks: []string{evictEnds, evictUnlock},
		locker: badLoss(func(lost *locker.LostError) {
			if lost.Reason == locker.LostEvicted {
				lost.Err = &locker.EvictedError{By: operators[0]}
			}
		}),
	},
	{
		bug: "every loss is told as an eviction", breaks: []string{evictOther},
		locker: badLoss(func(lost *locker.LostError) { lost.Reason = locker.LostEvicted }),
	},
	{
		bug: "a waiter is told of a holder", breaks: []string{evictHeld},
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: changeHeld(r, func(held *locker.HeldError) { held.Err = nil })}
		},
	},
	{
		bug: "a waiter is not told the label", breaks: []string{evictHeld},
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, acquire: changeHeld(r, func(held *locker.HeldError) { held.Holder = "" })}
		},
	},
}

// badLoss changes the loss that Extend and Release tell.
func badLoss(change func(lost *locker.LostError)) func(*reference) locker.Locker {
	return func(r *reference) locker.Locker {
		tell := func(err error) error {
			if lost, ok := errors.AsType[*locker.LostError](err); ok {
				change(lost)
			}
			return err
		}
		return double{
			Locker: r,
			extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				lease, err := r.Extend(ctx, lease, ttl)
				return lease, tell(err)
			},
			release: func(ctx context.Context, lease contract.Lease) error { return tell(r.Release(ctx, lease)) },
		}
	}
}
