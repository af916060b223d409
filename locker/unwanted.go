package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// This file releases leases that nobody will hold: they came too late, or were handed over to a call that
// can't use them. What an attempt leaves is in attempt.go, what a hold leaves in ending.go.

// tooLate releases a lease that the caller cannot use any more, and returns why.
func (w *waiting) tooLate(ctx context.Context, req *contract.Request, got *grant) (err error) {
	switch {
	case ctx.Err() != nil:
		err = &Error{Op: "lock", Key: req.Key, Err: ctxError(ctx)}
	case got.ended(time.Now()):
		err = errLate
	default:
		return nil
	}
	w.discard(ctx, got, req)
	return err
}

// discard releases a lease that was handed over, or granted, to a call that cannot use it; nil:
// none.
func (w *waiting) discard(ctx context.Context, got *grant, req *contract.Request) {
	if got != nil {
		discard(ctx, w, w, got.Lease, max(req.TTL, time.Until(got.Expires)))
	}
}

// discard releases a lease that came too late for its caller. It does so at once, even if the store
// was silent before: it has answered since.
func (c *Client) discard(ctx context.Context, lease contract.Lease, ttl time.Duration) {
	discard(ctx, c.locker, c.inner, lease, ttl)
}

func discard(ctx context.Context, l Locker, w *waiting, lease contract.Lease, ttl time.Duration) {
	remove := func(ctx context.Context) error {
		err := releaseOnce(ctx, l, lease)
		if err == nil {
			w.lines.freed(lease.Key)
		}
		return err
	}
	w.handovers.forget(lease.Token)
	w.cleanups.Add(&countedContext{ctx, w.ledger}, cleanup.Entry{TTL: ttl, Known: true, AtOnce: true, Remove: remove, Done: w.ledger.Count()})
}

// releaseOnce releases a lease that nobody holds any more. It is no error if the lease is gone
// already.
func releaseOnce(ctx context.Context, l Locker, lease contract.Lease) error {
	if err := l.Release(ctx, lease); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}
