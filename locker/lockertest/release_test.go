package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

var releaseDoubles = []broken{
	{
		bug: "a lease leaves its value when it ends, and only a Release in time removes it",
		locker: func(r *reference) locker.Locker {
			set, remove, ends := r.set, r.remove, map[string]time.Time{}
			r.set = func(key, token string, ttl time.Duration) (bool, entry, error) {
				ends[token] = time.Now().Add(ttl)
				return set(key, token, time.Hour)
			}
			r.remove = func(key, token string) (bool, error) {
				if end, known := ends[token]; known && time.Until(end) <= ttlMargin {
					return false, nil
				}
				return remove(key, token)
			}
			return r
		},
		breaks: []string{
			"a hold that its maximum has ended leaves nothing after its lease, whether Unlock comes late or never",
		},
	},
	{
		bug: "Release does nothing",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(context.Context, contract.Lease) error { return nil }}
		},
		breaks: []string{
			"the numbers of the grants of a key rise, or are all 0",
			"Release by the holder frees the lock and leaves nothing",
			"a second Release matches ErrLost",
			"of concurrent Releases exactly one succeeds",
			"when the store answers after ctx has ended, Acquire grants the lock or leaves nothing",
		},
	},
	{
		bug: "Release of nothing succeeds",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease contract.Lease) error {
				if err := r.Release(ctx, lease); !errors.Is(err, locker.ErrLost) {
					return err
				}
				return nil
			}}
		},
		breaks: []string{
			"a second Release matches ErrLost",
			"Release of a lease that the store ended too soon matches ErrLost",
			"a stale Release matches ErrLost and leaves the lease of the next holder alone",
			"of concurrent Releases exactly one succeeds",
			"when the reply to Release is lost, the error does not match ErrLost, and the error of a second Release does",
		},
	},
	{
		bug: "Release always fails in the end",
		locker: func(r *reference) locker.Locker {
			return double{Locker: r, release: func(ctx context.Context, lease contract.Lease) error {
				_ = r.Release(ctx, lease)
				return permanentError{errors.New("no")}
			}}
		},
		breaks: []string{
			"Release by the holder frees the lock and leaves nothing",
		},
	},
}

// ttlMargin is how much sooner than its value a short lease ends.
const ttlMargin = 10 * time.Millisecond
