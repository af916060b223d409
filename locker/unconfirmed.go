package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
)

// unconfirmed is the error of an Unlock that waits no longer. After a loss before Unlock it is the loss,
// whatever becomes of the release of what is left.
func (h *hold) unconfirmed(cause error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lost, ok := errors.AsType[*LostError](h.over.cause); ok {
		return wrap("release", h.lease.Key, lost)
	}
	if cause != nil {
		return &Error{Op: "release", Key: h.lease.Key, Err: &unconfirmedError{ends: h.keyEnds(), cause: cause, ctx: true}}
	}
	if cause = h.extensions.failed; cause == nil {
		cause = errNoAnswer
	}
	return &Error{Op: "release", Key: h.lease.Key, Err: h.unconfirmedBecause(cause)}
}

func (h *hold) unconfirmedBecause(cause error) error {
	if failed, ok := cause.(*Error); ok && failed.Op == "release" { //nolint:errorlint // what wraps it says more
		cause = failed.Err
	}
	return &unconfirmedError{ends: h.keyEnds(), cause: cause}
}

// keyEnds is the first full second at which the store has forgotten the lease. What an extension without an
// answer has done is not known.
func (h *hold) keyEnds() time.Time {
	margin := h.lease.Expires.Add(h.ttl).Sub(contract.Until(h.lease.Expires, h.ttl))
	ends := later(h.lease.Expires.Add(margin), later(h.lease.Granted.Add(h.ttl), h.keyKept()))
	for c := h.extensions.first; c != nil; c = c.next {
		ends = later(ends, time.Now().Add(c.ttl))
	}
	return later(fullSecond(ends), time.Unix(int64(h.extensions.until), 0))
}

// fullSecond is t, or the next full second after it.
func fullSecond(t time.Time) time.Time {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}

// unconfirmedError says that no Release is known to have been done.
type unconfirmedError struct {
	ends  time.Time
	cause error
	ctx   bool // the cause is the end of the caller's ctx
}

func (e *unconfirmedError) Error() string {
	return "not confirmed; the lease ends by itself at " + e.ends.Local().Format(time.TimeOnly) + ": " + text(e.cause)
}

// Is and As look at the cause. Is leaves out the deadline of a Release, which is not the caller's
// ctx.
func (e *unconfirmedError) Is(target error) bool {
	return (e.ctx || target != context.DeadlineExceeded) && errors.Is(e.cause, target)
}

func (e *unconfirmedError) As(target any) bool { return errors.As(e.cause, target) }

// ErrorType is that of the cause.
func (e *unconfirmedError) ErrorType() string { return (&Error{Err: e.cause}).ErrorType() }
