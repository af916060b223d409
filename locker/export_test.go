package locker

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// EndedBy is for the lease of a Client that goes by clock, from now on. It tells whether the lease has ended.
func EndedBy(l contract.Lease, clock *wallclock.Clock) (ended func() bool) {
	g := &grant{l, clock.Read()}
	return func() bool { return g.ended(time.Now()) }
}

// Parts of a Client that must be empty when nothing is locked or waited for.
func (c *Client) Lines() int { c.lines.mu.Lock(); defer c.lines.mu.Unlock(); return len(c.lines.byKey) }

func (c *Client) Scheduled() int {
	c.renewals.mu.Lock()
	defer c.renewals.mu.Unlock()
	return c.renewals.tasks()
}

func (c *Client) TimerIsSet() bool {
	c.renewals.mu.Lock()
	defer c.renewals.mu.Unlock()
	return !c.renewals.armed.IsZero()
}

// HandedOver is how many leases are remembered because they were handed over, or could have been.
func (c *Client) HandedOver() int { return HandedOver(c.inner) }

// HandedOver is the same for what the middleware of a Client wraps.
func HandedOver(l Locker) int {
	w, ok := l.(*waiting)
	if !ok {
		w = l.(behind).waiting
	}
	w.handovers.mu.Lock()
	defer w.handovers.mu.Unlock()
	return len(w.handovers.given)
}

// Unconfirmed is the error of an Unlock that waits no longer, since its ctx has ended with cause.
func Unconfirmed(cause error) error { return &unconfirmedError{cause: cause, ctx: true} }

// Locker is what middleware wraps.
func (c *Client) Locker() Locker { return c.locker }

// Cleanups is the queue of what is released in the background.
func (c *Client) Cleanups() cleanup.Stats { return c.cleanups.Stats() }

// FillCleanups leaves no room for another cleanup until the store has answered.
func (c *Client) FillCleanups(ctx context.Context, remove func(context.Context) error) {
	for c.cleanups.Add(ctx, cleanup.Entry{TTL: time.Minute, Remove: remove}) {
	}
}

// IsHoldKey tells whether key is that by which a ctx is asked for the innermost hold above it.
func IsHoldKey(key any) bool { return key == holdKey{} }
