// Package cleanup removes what an operation with an unknown outcome may have left in a store.
package cleanup

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

const (
	tryLimit   = time.Second          // for one call: a connection that is stuck must not use up the whole time
	firstPause = 5 * time.Millisecond // between calls that failed, doubling
	maxPause   = time.Second          // up to this
)

// confirmations are the pauses after which an answered clean-up is repeated. What it cleans up after may still be on
// its way when the first one is answered: in the socket of a server that was stopped, in a proxy, in TCP's
// retransmission queue.
var confirmations = []time.Duration{50 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

// Group is the clean-ups of one store, so that those of one that is down do not grow with the calls made in vain, nor
// keep those of another from it. Ready to use when zero.
type Group struct{ calls atomic.Int32 }

// maxCalls are made at once; clean-ups beyond them wait for the time of a pause.
const maxCalls = 64

// Go calls remove in the background until the store has answered, and then a few times more, at most for ttl: by then
// the store has forgotten by itself. The ctx lends its values only; its end does not stop a clean-up. Between calls
// there is a timer and no goroutine, so that a test in fake time may end before a clean-up does.
func (g *Group) Go(ctx context.Context, ttl time.Duration, remove func(context.Context) error) {
	g.start(ctx, ttl, &cleanup{remove: remove})
}

// Settle calls remove in the background until the store has answered, at most for ttl: for what is known to be there.
func (g *Group) Settle(ctx context.Context, ttl time.Duration, remove func(context.Context) error) {
	g.start(ctx, ttl, &cleanup{remove: remove, confirmed: len(confirmations)})
}

func (g *Group) start(ctx context.Context, ttl time.Duration, c *cleanup) {
	c.group, c.pause = g, firstPause
	c.ctx, c.cancel = context.WithTimeout(context.WithoutCancel(ctx), ttl)
	go c.step()
}

type cleanup struct {
	group     *Group
	ctx       context.Context
	cancel    context.CancelFunc
	remove    func(context.Context) error
	pause     time.Duration // after the next failure
	confirmed int           // answers so far, less the first
}

// step makes one call, and sets the timer for the next one. If the call hangs, the next one does not wait for it.
func (c *cleanup) step() {
	end, _ := c.ctx.Deadline()
	if !time.Now().Before(end) { // only calls that hang are left
		return
	}
	if c.group.calls.Add(1) > maxCalls {
		c.group.calls.Add(-1)
		time.AfterFunc(maxPause, c.step)
		return
	}
	defer c.group.calls.Add(-1)
	hangs := time.AfterFunc(2*tryLimit, c.step)
	err := try(c.ctx, c.remove)
	if !hangs.Stop() {
		return // another one has taken over
	}
	next := c.pause
	switch {
	case Refused(err): // and would be again
		c.cancel()
		return
	case err != nil:
		c.pause = min(2*c.pause, maxPause)
	case c.confirmed < len(confirmations):
		next = confirmations[c.confirmed]
		c.confirmed++
		c.pause = firstPause
	default:
		c.cancel()
		return
	}
	if time.Until(end) < next {
		c.cancel()
		return
	}
	time.AfterFunc(next, c.step)
}

// Repeat calls fn until it returns nil or a refusal, or ctx is done; it returns the last error of fn. Every call has a
// limit of its own.
func Repeat(ctx context.Context, fn func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if err := try(ctx, fn); err == nil || Refused(err) || !sleep(ctx, pause) {
			return err
		}
	}
}

func try(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	return fn(ctx)
}

// Refused tells whether err says by a method Refused() bool that the store did not do what it was asked to and will
// not do it the next time either: a missing permission, bad input.
func Refused(err error) bool {
	var r interface{ Refused() bool }
	return errors.As(err, &r) && r.Refused()
}

// Unsent tells whether err says, by a method Unsent() bool, that nothing was sent, or that there was no connection to send
// it on. Only the error of a call that was not repeated says so of the call as a whole.
func Unsent(err error) bool {
	var u interface{ Unsent() bool }
	if errors.As(err, &u) && u.Unsent() {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// sleep returns false as soon as ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
