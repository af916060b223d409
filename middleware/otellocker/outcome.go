package otellocker

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// outcome is the end of a request as one word.
type outcome string

const (
	acquired outcome = "acquired"
	busy     outcome = "busy" // another holder has the lock, and the call does not wait, or stopped waiting
	timeout  outcome = "timeout"
	canceled outcome = "canceled"
	failed   outcome = "error"

	// of an extension
	renewed outcome = "renewed"
	kept    outcome = "kept" // by Unlock, for the rest of the minimum hold
	lost    outcome = "lost"
)

// errNoAnswer stands for the answer of a Locker that panics or ends the goroutine.
var errNoAnswer = errors.New("the locker did not answer")

// outcomeOf returns the outcome of an Acquire under ctx.
func outcomeOf(ctx context.Context, err error) outcome {
	switch over := ended(ctx, err); {
	case err == nil:
		return acquired
	case errors.Is(err, locker.ErrWaitLimit):
		return timeout
	case over != "":
		return over
	case errors.Is(err, locker.ErrHeld):
		return busy
	}
	return failed
}

// renewalOf returns the outcome of an Extend of lease under ctx.
func renewalOf(ctx context.Context, lease contract.Lease, err error) outcome {
	over, cause := ended(ctx, err), context.Cause(ctx)
	switch {
	case err == nil && contract.CallOf(ctx).Kept():
		return kept
	case err == nil:
		return renewed
	case errors.Is(cause, locker.ErrReleased): // after a release, Extend may find nothing
		return canceled
	case errors.Is(err, locker.ErrLost):
		return lost
	case over == canceled && errors.Is(cause, locker.ErrLost) && lossOf(cause) != locker.LostMaxHold:
		return timeout // the call hung until the lease had ended
	case over == timeout && unwanted(ctx, lease.Key):
		return canceled
	case over != "":
		return over
	}
	return failed
}

// unwanted reports whether nobody needs an extension any more: the ctx that the lock was asked for
// with has ended.
func unwanted(ctx context.Context, lock string) bool {
	o := originOf(ctx, lock)
	return o != nil && o.asked.Err() != nil
}

// ended returns how ctx ended if that is the cause of err, and nothing otherwise. A client library
// has deadlines of its own: a server that does not answer within them has failed.
func ended(ctx context.Context, err error) outcome {
	switch over := ctx.Err(); {
	case over == nil || !errors.Is(err, over):
		return ""
	case errors.Is(over, context.DeadlineExceeded):
		return timeout
	}
	return canceled
}

// result is what an Acquire returned.
type result struct {
	outcome outcome
	resumed bool
	call    contract.Call
	lease   contract.Lease
	err     error
}

// failed reports whether the status of the span is Error.
func (r *result) failed() bool { return r.outcome == timeout || r.outcome == failed }

// attempts returns the attempts of the call; one for a Locker that does not wait.
func (r *result) attempts() int {
	var e *locker.Error
	var held *locker.HeldError
	switch {
	case r.err == nil:
		return max(r.call.Attempts(), 1)
	case errors.As(r.err, &e) && e.Op == "lock": // the end of a wait, with no attempt if the call never left the line
		return e.Attempts
	case errors.As(r.err, &e):
		return max(e.Attempts, 1)
	case errors.As(r.err, &held):
		return max(held.Attempts, 1)
	}
	return 1
}

// sharing returns the holds of the key, or 0 where one holder only may have it: when the lease was
// granted, itself included, or those that were in the way. The holder is the label of one of those.
func (r *result) sharing() (holds int, holder string) {
	if r.err == nil {
		return r.lease.Holds, ""
	}
	var held *locker.HeldError
	if errors.As(r.err, &held) {
		return held.Holds, held.Holder
	}
	return 0, ""
}

// contended reports whether another holder had the lock, or another call was before this one in
// line. A Resume competes with nobody. One that is busy may have found the lock free.
func (r *result) contended() bool {
	if r.resumed {
		return false
	}
	var e *locker.Error
	return r.call.Contended() || errors.Is(r.err, locker.ErrHeld) || errors.As(r.err, &e) && e.Contended
}

// quorum returns the counted votes, or zero without a quorum.
func (r *result) quorum() contract.Quorum {
	if r.err == nil {
		return r.lease.Quorum
	}
	return quorumOf(r.err)
}

func quorumOf(err error) contract.Quorum {
	var counted interface{ Quorum() contract.Quorum }
	if errors.As(err, &counted) {
		return counted.Quorum()
	}
	return contract.Quorum{}
}

// errorType returns one word for err.
func errorType(err error) string { return (&locker.Error{Err: err}).ErrorType() }

// lossOf returns why the lock was lost, or nothing if it was not.
func lossOf(cause error) locker.LostReason {
	var loss *locker.LostError
	switch {
	case errors.As(cause, &loss):
		return loss.Reason
	case errors.Is(cause, locker.ErrLost):
		return locker.LostStolen
	}
	return ""
}
