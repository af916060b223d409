package locker

import (
	"context"
	"errors"
	"time"
)

// extendCall is an extension. The scheduler waits for none of its own, and who asks by hand may leave his: if it fails then, that
// shows in the next one or in the loss.
type extendCall struct {
	l     *Lock
	ctx   context.Context
	ttl   time.Duration
	limit time.Duration // of one that the scheduler counts among those under way; 0: by hand
	err   error
	done  chan struct{} // closed when it is over; nil: nobody waits

	// guarded by the mutex of the Lock
	cancel context.CancelCauseFunc // nil before it runs
	next   *extendCall             // of those of the Lock that are under way
}

func (c *extendCall) answered() {
	if c.done != nil {
		close(c.done)
	}
	if c.limit > 0 {
		c.l.client.renewals.answered()
	}
}

// call asks for ttl from now and takes in the answer, whenever it comes. The extension has begun.
func (c *extendCall) call() {
	l, before := c.l, c.l.Lease()
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
		c.err = l.extended(c, before, after, err)
	}()
	if l.goesOn(c, cancelBy) {
		after, err = l.client.locker.Extend(ctx, before, c.ttl)
	}
}

// begin counts an extension in, unless the hold is over.
func (l *Lock) begin(c *extendCall) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return l.over
	}
	l.extensions, c.next = c, l.extensions
	return nil
}

// goesOn tells whether the hold does, and how its end is to be told.
func (l *Lock) goesOn(c *extendCall, cancel context.CancelCauseFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.cancel = cancel
	return l.over == nil
}

// giveUp returns what cancels those under way. The mutex is held, as in what follows; to cancel, it must not be: an extension may
// run below the context of the hold itself, which looks at the lock.
func (l *Lock) giveUp() (cancels []context.CancelCauseFunc) {
	if l.extensions != nil {
		l.joined = make(chan struct{})
	}
	for c := l.extensions; c != nil; c = c.next {
		if c.cancel != nil {
			cancels = append(cancels, c.cancel)
		}
	}
	return cancels
}

func (l *Lock) countOut(c *extendCall) {
	at := &l.extensions
	for *at != c {
		at = &(*at).next
	}
	*at = c.next
	if l.joined != nil && l.extensions == nil {
		close(l.joined)
	}
}

func (l *Lock) underWay() (n int) {
	for c := l.extensions; c != nil; c = c.next {
		n++
	}
	return n
}

// errNoAnswer is what a Locker says that ends its goroutine.
var errNoAnswer = errors.New("the locker did not answer")

// errOutdated replaces a loss that a Locker concludes from a lease which another extension has made longer since.
var errOutdated = errors.New("answered for a lease that has been extended since")

// extended takes in the answer to c, an extension of before.
func (l *Lock) extended(c *extendCall, before, after Lease, err error) error {
	var lost *LostError
	isLost := errors.Is(err, ErrLost)
	if isLost && !errors.As(err, &lost) {
		lost = &LostError{Key: before.Key, Reason: LostStolen}
	}
	l.mu.Lock()
	moved, ended := false, l.over == nil && l.lease.Ended()
	switch {
	case l.over != nil || ended: // what is over stays over
	case isLost && lost.Reason == LostExpired && l.lease.Expires.After(before.Expires):
		isLost, err = false, errOutdated
	case err != nil:
		if l.ctx.Context.Err() == nil && !refused(l.failed) { // a refusal says more than what follows it
			l.failed = err
		}
	default:
		l.failed = nil
		if moved = after.Expires.After(l.lease.Expires); moved {
			l.lease.Expires, l.lease.wall = after.Expires, after.wall
		}
	}
	l.countOut(c)
	over := l.over
	l.mu.Unlock()

	switch {
	case over != nil:
		return over
	case ended:
		lost = l.expired()
		l.lose(lost)
		return lost
	case moved:
		l.client.renewals.reschedule(l)
	case isLost:
		l.lose(lost)
	}
	return wrap("extend", before.Key, err)
}
