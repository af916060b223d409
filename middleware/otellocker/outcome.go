package otellocker

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/locker"
)

// outcome is how a request ended, in one word.
type outcome string

const (
	acquired outcome = "acquired"
	busy     outcome = "busy" // someone else has it, and the call did not wait, or not any more
	timeout  outcome = "timeout"
	canceled outcome = "canceled"
	failed   outcome = "error"

	// of an extension
	renewed outcome = "renewed"
	lost    outcome = "lost"
)

// errNoAnswer is what a Locker says that panics or ends the goroutine.
var errNoAnswer = errors.New("the locker did not answer")

// outcomeOf tells apart what an Acquire under ctx ended with.
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

// renewalOf tells apart what an Extend of a lock under ctx ended with.
func renewalOf(ctx context.Context, lock string, err error) outcome {
	over, cause := ended(ctx, err), context.Cause(ctx)
	switch {
	case err == nil:
		return renewed
	case errors.Is(cause, locker.ErrReleased): // it may well find nothing any more
		return canceled
	case errors.Is(err, locker.ErrLost):
		return lost
	case over == canceled && errors.Is(cause, locker.ErrLost) && lossOf(cause) != locker.LostMaxHold:
		return timeout // it hung until the lease had ended
	case over == timeout && unwanted(ctx, lock):
		return canceled
	case over != "":
		return over
	}
	return failed
}

// unwanted tells whether an extension of a lock under ctx has become needless, since the time of who asked for the lock is over.
func unwanted(ctx context.Context, lock string) bool {
	o := originOf(ctx, lock)
	return o != nil && o.asked.Err() != nil
}

// ended tells how ctx ended if that is why err came, and nothing if the caller's time was not over: a client library has
// deadlines of its own, and a server that does not answer within them has failed.
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
	lease   locker.Lease
	err     error
}

// failed: the status of its span is Error.
func (r *result) failed() bool { return r.outcome == timeout || r.outcome == failed }

// attempts of the call; those of a Locker that does not wait are one.
func (r *result) attempts() int {
	var e *locker.Error
	var held *locker.HeldError
	switch {
	case r.err == nil:
		return max(r.lease.Attempts, 1)
	case errors.As(r.err, &e) && e.Op == "lock": // the end of a wait, which may have been in line all the time
		return e.Attempts
	case errors.As(r.err, &e):
		return max(e.Attempts, 1)
	case errors.As(r.err, &held):
		return max(held.Attempts, 1)
	}
	return 1
}

// contended: someone else had the lock, or was before this call in line.
func (r *result) contended() bool {
	var e *locker.Error
	return r.lease.Contended || errors.Is(r.err, locker.ErrHeld) || errors.As(r.err, &e) && e.Contended
}

// quorum is zero if there was none to count.
func (r *result) quorum() locker.Quorum {
	if r.err == nil {
		return r.lease.Quorum
	}
	return quorumOf(r.err)
}

func quorumOf(err error) locker.Quorum {
	var counted interface{ Quorum() locker.Quorum }
	if errors.As(err, &counted) {
		return counted.Quorum()
	}
	return locker.Quorum{}
}

// errorType is one word.
func errorType(err error) string { return (&locker.Error{Err: err}).ErrorType() }

// lossOf is why a lock was lost, or empty if it was not.
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
