package instance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// lost is the error for a lease that the store no longer has. It looks once for what an eviction has
// left in its place. A renewal or a release that finds its lease costs nothing more, and no call of a
// store has another answer for a case in a million. If the look fails for good, that is the cause: the
// key has another type now, or the file of SQLite was replaced. A store whose options exclude the look
// tells nothing.
func (i *instance) lost(ctx context.Context, lease contract.Lease) error {
	err := locker.Lost(lease)
	if !i.mayBeEvicted(ctx, lease) {
		return err
	}
	mark, found, failed := i.mark(ctx, lease)
	switch lost, ok := errors.AsType[*locker.LostError](err); {
	case found:
		return &locker.LostError{Key: lease.Key, Reason: locker.LostEvicted, Err: &locker.EvictedError{By: mark.Holder}}
	case ok && backends.Permanent(failed) && !errors.As(failed, new(backends.Invalid)):
		lost.Err = failed
	}
	return err
}

// mayBeEvicted is false if the lease is over by itself, or was never granted: a cleanup tells no end.
// A quorum releases on nodes that never granted the lease, and would look there each time.
func (i *instance) mayBeEvicted(ctx context.Context, lease contract.Lease) bool {
	return i.evictions != nil && ctx.Err() == nil && !calls.IsNode(ctx) && !lease.Expires.IsZero() && !lease.Ended()
}

// mark is the hold that keeps the key closed in the place of the evicted one. The holder must stop its
// work, whatever the reason is. So the look has little time, and no more than half of the time of the
// call: a quorum must hear in time that the lease is lost. A store that ignores its ctx is left alone.
func (i *instance) mark(ctx context.Context, lease contract.Lease) (_ backends.Hold, found bool, failed error) {
	limit := min(lookLimit, time.Until(lease.Expires))
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	type look struct {
		backends.State
		err error
	}
	seen := make(chan look, 1)
	go func() {
		defer cancel()
		state, err := i.evictions.Inspect(ctx, lease.Key) // without an answer the lease is lost all the same
		seen <- look{state, err}
	}()
	<-ctx.Done()
	select {
	case state := <-seen:
		at := slices.IndexFunc(state.Holds, func(h backends.Hold) bool { return h.Replaces(lease.Token) })
		if at >= 0 {
			return state.Holds[at], true, nil
		}
		failed = state.err
	default:
	}
	return backends.Hold{}, false, failed
}

const lookLimit = time.Second / 2
