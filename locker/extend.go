package locker

import (
	"context"
	"errors"
	"time"
)

// extendCall is an extension that nobody waits for, or may leave. If it fails, that shows in the next one or in the loss.
type extendCall struct {
	l     *Lock
	ctx   context.Context
	ttl   time.Duration
	limit time.Duration // of one that the scheduler counts among those under way; 0: by hand
	err   error
	done  chan struct{}
}

func (c *extendCall) call() {
	ctx := c.ctx
	if c.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.limit)
		defer cancel()
	}
	c.err = c.l.extendNow(ctx, c.ttl)
}

func (c *extendCall) answered() {
	close(c.done)
	if c.limit > 0 {
		r := &c.l.client.renewals
		r.mu.Lock()
		r.inFlight--
		r.mu.Unlock()
	}
}

// extendNow asks for ttl from now and takes in the answer, whenever it comes. The caller has counted it in.
func (l *Lock) extendNow(ctx context.Context, ttl time.Duration) (result error) {
	before := l.Lease()
	ctx, cancel := context.WithDeadline(ctx, before.Expires)
	after, err := before, errNoAnswer
	defer func() { // also if the Locker ends the goroutine
		cancel()
		result = l.extended(before, after, err)
	}()
	after, err = l.client.locker.Extend(ctx, before, ttl)
	return nil
}

// errNoAnswer is what a Locker says that ends its goroutine.
var errNoAnswer = errors.New("the locker did not answer")

// errOutdated replaces a loss that a Locker concludes from a lease which another extension has made longer since.
var errOutdated = errors.New("answered for a lease that has been extended since")

// extended takes in the answer to an extension of before.
func (l *Lock) extended(before, after Lease, err error) error {
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
	l.extending--
	if l.joined != nil && l.extending == 0 {
		close(l.joined)
	}
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
