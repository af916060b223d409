package lockertest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// broken is a Locker, or a Client over the reference, that has one bug and breaks sentences.
type broken struct {
	bug     string
	locker  func(r *reference) locker.Locker       // nil: the reference
	client  func(next locker.Locker) locker.Locker // middleware that gives the Client the bug
	options []locker.ClientOption                  // of the Client

	noWatch, noLeft, noTransfer bool // of its harness

	breaks []string
}

// double is a Locker with some methods replaced.
type double struct {
	locker.Locker
	acquire  func(ctx context.Context, req contract.Request) (contract.Lease, error)
	transfer func(ctx context.Context, from string, req contract.Request) (contract.Lease, error)
	extend   func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error)
	release  func(ctx context.Context, lease contract.Lease) error
	watch    func(ctx context.Context, key, waiter string, wake func()) error
}

func (d double) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if d.acquire != nil {
		return d.acquire(ctx, req)
	}
	return d.Locker.Acquire(ctx, req)
}

func (d double) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	if d.transfer != nil {
		return d.transfer(ctx, from, req)
	}
	return d.Locker.Transfer(ctx, from, req)
}

func (d double) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if d.extend != nil {
		return d.extend(ctx, lease, ttl)
	}
	return d.Locker.Extend(ctx, lease, ttl)
}

func (d double) Release(ctx context.Context, lease contract.Lease) error {
	if d.release != nil {
		return d.release(ctx, lease)
	}
	return d.Locker.Release(ctx, lease)
}

func (d double) Watch(ctx context.Context, key, waiter string, wake func()) error {
	if d.watch != nil {
		return d.watch(ctx, key, waiter, wake)
	}
	return d.Locker.Watch(ctx, key, waiter, wake)
}

func unsupported(context.Context, string, string, func()) error { return errors.ErrUnsupported }

// changed is the reference with one part replaced.
func changed(change func(r *reference)) func(*reference) locker.Locker {
	return func(r *reference) locker.Locker {
		change(r)
		return r
	}
}

// badLease changes what Acquire grants.
func badLease(change func(l *contract.Lease)) func(*reference) locker.Locker {
	return func(r *reference) locker.Locker {
		return double{Locker: r, acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
			lease, err := r.Acquire(ctx, req)
			if err == nil {
				change(&lease)
			}
			return lease, err
		}}
	}
}

func changeHeld(next locker.Locker, change func(held *locker.HeldError)) func(context.Context, contract.Request) (contract.Lease, error) {
	return func(ctx context.Context, req contract.Request) (contract.Lease, error) {
		lease, err := next.Acquire(ctx, req)
		if held := (*locker.HeldError)(nil); errors.As(err, &held) {
			change(held)
		}
		return lease, err
	}
}

// badErrors changes the errors of all methods. req has the key, and the token if the call has one.
func badErrors(change func(op Op, token string, err error) error) func(locker.Locker) locker.Locker {
	return func(next locker.Locker) locker.Locker {
		wrong := func(op Op, token string, err error) error {
			if err == nil {
				return nil
			}
			return change(op, token, err)
		}
		return double{
			acquire: func(ctx context.Context, req contract.Request) (contract.Lease, error) {
				lease, err := next.Acquire(ctx, req)
				return lease, wrong(Acquire, req.Token, err)
			},
			extend: func(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
				after, err := next.Extend(ctx, lease, ttl)
				return after, wrong(Extend, lease.Token, err)
			},
			release: func(ctx context.Context, lease contract.Lease) error {
				return wrong(Release, lease.Token, next.Release(ctx, lease))
			},
			watch: func(ctx context.Context, key, waiter string, wake func()) error {
				return wrong(Watch, "", next.Watch(ctx, key, waiter, wake))
			},
		}
	}
}

func onLocker(wrong func(locker.Locker) locker.Locker) func(*reference) locker.Locker {
	return func(r *reference) locker.Locker { return wrong(r) }
}

func unknown(err error) bool {
	return err != nil && !errors.Is(err, locker.ErrHeld) && !errors.Is(err, locker.ErrLost)
}

// anyoneReleases is a Locker whose Release deletes any value.
func anyoneReleases(r *reference) locker.Locker {
	r.remove = func(key, _ string) (bool, error) {
		_, found := r.live(key)
		delete(r.entries, key)
		return found, nil
	}
	return r
}

// doubles are Lockers and Clients with one bug each.
var doubles = slices.Concat(
	acquireDoubles,
	ownerDoubles,
	extendDoubles,
	expiryDoubles,
	heldDoubles,
	againDoubles,
	releaseDoubles,
	inputDoubles,
	contextDoubles,
	unknownDoubles,
	watchDoubles,
	clientDoubles,
	silentDoubles,
	renewDoubles,
	evictDoubles,
	unlockDoubles,
	minHoldDoubles,
	transferDoubles,
)

// unbreakable are the sentences that no Locker and no middleware can break, with the reason.
var unbreakable = map[string]string{
	"Lock and TryLock with a ctx that is done return the error of the ctx and take nothing": "the Client looks at the ctx before it calls its Locker",
	"a caller that looks at the context of a lock at its Expires or later finds it ended":   "the Client looks at the clocks by itself; this sentence has found a race of it",
}
