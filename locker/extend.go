package locker

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/stack"
)

// extendCall is an extension. The scheduler waits for none of its own, and who asks by hand may leave his: if it fails then, that
// shows in the next one or in the loss.
type extendCall struct {
	h     *hold
	ctx   context.Context
	ttl   time.Duration
	limit time.Duration // of one that the scheduler counts among those under way; 0: by hand
	err   error
	done  chan struct{} // closed when it is over; nil: nobody waits

	// guarded by the mutex of the hold
	cancel context.CancelCauseFunc // nil before it runs
	next   *extendCall             // of those of the hold that are under way
}

// run is call on a goroutine of its own.
func (c *extendCall) run() {
	defer c.answered() // also if the Locker ends the goroutine
	stack.Grow()
	c.call()
}

func (c *extendCall) answered() {
	if c.done != nil {
		close(c.done)
	}
	if c.limit > 0 {
		c.h.client.renewals.answered()
	}
}

// call asks for ttl from now and takes in the answer, whenever it comes. The extension has begun.
func (c *extendCall) call() {
	h, before := c.h, c.h.leaseNow()
	end := before.Expires
	if c.limit > 0 {
		end = earlier(time.Now().Add(c.limit), end)
	}
	// The end of the hold cancels it, with its cause. A ctx below that of the hold would be told as well, but leave a map and a channel
	// in it, and there may be a hundred thousand.
	hold, cancelBy := context.WithCancelCause(c.ctx)
	ctx, cancel := context.WithDeadline(hold, end)
	after, err := before, errNoAnswer
	defer func() { // also if the Locker ends the goroutine
		cancel()
		cancelBy(nil)
		c.err = h.extended(c, before, after, err)
	}()
	if h.goesOn(c, cancelBy) {
		asked := before
		asked.Abandoned = c.limit > 0 && h.tellAbandoned()
		after, err = h.client.locker.Extend(ctx, asked, c.ttl)
	}
}

// begin counts an extension in, unless the hold is over.
func (h *hold) begin(c *extendCall) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over == ErrReleased { //nolint:errorlint // any other tells its key itself
		return &Error{Op: "extend", Key: h.lease.Key, Err: h.over}
	}
	if h.over != nil {
		return h.over
	}
	h.extensions, c.next = c, h.extensions
	return nil
}

// goesOn tells whether the hold does, and how its end is to be told.
func (h *hold) goesOn(c *extendCall, cancel context.CancelCauseFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.cancel = cancel
	return h.over == nil
}

// giveUp returns what cancels those under way. The mutex is held, as in what follows; to cancel, it must not be: an extension may
// run below the context of the hold itself, which looks at the lock.
func (h *hold) giveUp() (cancels []context.CancelCauseFunc) {
	if h.extensions != nil {
		h.joined = make(chan struct{})
	}
	for c := h.extensions; c != nil; c = c.next {
		if c.cancel != nil {
			cancels = append(cancels, c.cancel)
		}
	}
	return cancels
}

func (h *hold) countOut(c *extendCall) {
	at := &h.extensions
	for *at != c {
		at = &(*at).next
	}
	*at = c.next
	if h.joined != nil && h.extensions == nil {
		close(h.joined)
	}
}

func (h *hold) underWay() (n int) {
	for c := h.extensions; c != nil; c = c.next {
		n++
	}
	return n
}

// errNoAnswer is what a Locker says that ends its goroutine.
var errNoAnswer = errors.New("the locker did not answer")

// errOutdated replaces a loss that a Locker concludes from a lease which another extension has made longer since.
var errOutdated = errors.New("answered for a lease that has been extended since")

// extended takes in the answer to c, an extension of before.
func (h *hold) extended(c *extendCall, before, after Lease, err error) error {
	var lost *LostError
	isLost, unwanted := errors.Is(err, ErrLost), h.parent.Err() != nil
	if isLost && !errors.As(err, &lost) {
		lost = &LostError{Key: before.Key, Reason: LostStolen}
	}
	h.mu.Lock()
	moved, ended := false, h.over == nil && h.lease.Ended()
	switch {
	case h.over != nil || ended: // what is over stays over
	case isLost && lost.Reason == LostExpired && h.lease.Expires.After(before.Expires):
		isLost, err = false, errOutdated
	case err != nil:
		if !unwanted && !permanent(h.failed) { // a refusal says more than what follows it
			h.failed = err
		}
	default:
		h.failed = nil
		if moved = after.Expires.After(h.lease.Expires); moved {
			h.lease.Expires, h.lease.wall = after.Expires, after.wall
		}
	}
	h.countOut(c)
	over := h.over
	h.mu.Unlock()

	switch {
	case over != nil:
		return over
	case ended:
		lost = h.expired()
		h.lose(lost)
		return lost
	case moved:
		h.client.renewals.reschedule(h)
	case isLost:
		h.lose(lost)
	}
	return wrap("extend", before.Key, err)
}
