package locker

import (
	"context"
	"errors"
	"slices"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// through is acquire through middleware, which finds the call in the ctx.
func (c *Client) through(ctx context.Context, req *contract.Request, so *effort) (err error) {
	within := &callContext{countedContext: countedContext{ctx, &c.ledger}, wait: so.wait}
	within.said.scoped = so.scoped
	passed := false
	defer func() { // also if middleware panics
		if !passed {
			for _, lease := range within.refused() {
				c.inner.discard(ctx, &grant{Lease: lease}, req)
			}
		}
	}()
	if so.from != "" {
		so.got.Lease, err = c.locker.Transfer(within, so.from, *req)
	} else {
		so.got.Lease, err = c.locker.Acquire(within, *req)
	}
	if passed = err == nil; passed {
		_ = within.refuses(so.got.Token) // the hold releases it now
	}
	so.hooks, so.got.wall = within.result()
	return err
}

// behind is what middleware of [WithMiddleware] wraps. It finds the call of the Client in the ctx.
type behind struct{ *waiting }

// Acquire is lock for a call that has come through middleware.
func (b behind) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	c, so, err := callOf(ctx)
	if err != nil {
		return contract.Lease{}, &Error{Op: "acquire", Key: req.Key, Err: err}
	}
	if err = b.lock(ctx, &req, &so); err != nil {
		return contract.Lease{}, err
	}
	c.granted(&so)
	if b.handovers.has(so.got.Token) {
		c.takes(so.got.Lease)
	}
	return so.got.Lease, nil
}

// Transfer is resume for a call that has come through middleware.
func (b behind) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	c, so, err := callOf(ctx)
	if err != nil {
		return contract.Lease{}, &Error{Op: "acquire", Key: req.Key, Err: err}
	}
	if err := req.ValidateTransfer(from); err != nil { // without a token it would be an Acquire
		return contract.Lease{}, err
	}
	so.from = from
	if err = b.resume(ctx, &req, &so); err != nil {
		return contract.Lease{}, err
	}
	c.granted(&so)
	return so.got.Lease, nil
}

// Release sends nothing if the lease was handed over and its last holder has not ended its hold: so
// this Release is of a holder before, and middleware repeats it. It is sent if middleware refuses the lease
// that was just handed over to its call.
func (b behind) Release(ctx context.Context, lease contract.Lease) error {
	call, _ := ctx.Value(callKey{}).(*callContext)
	handed := b.handovers.has(lease.Token)
	if handed && !call.refuses(lease.Token) {
		return nil
	}
	if call == nil { // Unlock wakes the waiters
		return b.Locker.Release(ctx, lease)
	}
	b.handovers.forget(lease.Token)
	defer b.lines.freed(lease.Key) // no hold of a lease that middleware refuses tells them
	err := b.Locker.Release(ctx, lease)
	if handed && err != nil && !errors.Is(err, ErrLost) { // the Client repeats it when the call has failed
		call.takes(lease)
	}
	return err
}

// callContext is the ctx of a call that goes through middleware. Behind the middleware, each Acquire under
// it has an effort of its own: middleware may make several, also at once. The last one that has granted
// counts.
type callContext struct {
	countedContext
	wait *waitPolicy
	said said
	few  [2]contract.Begin  // room for the hooks: most programs have one or two
	wall *wallclock.Reading // before the attempt that won
	// Leases that another hold handed over to an Acquire of this call, and that nobody has yet. A Release by
	// middleware under this ctx is of the lease, and of no hold before: see behind.Release.
	handed []contract.Lease
}

func (c *callContext) Value(key any) any {
	switch key {
	case calls.Key{}:
		return &c.said
	case callKey{}:
		return c
	}
	return c.countedContext.Value(key)
}

// granted notes what the Acquire has found that has just granted.
func (c *callContext) granted(so *effort) {
	c.said.mu.Lock()
	defer c.said.mu.Unlock()
	c.said.attempts, c.said.contended, c.wall = so.attempts, so.contended(), so.got.wall
	c.said.hooks = append(c.few[:0], so.hooks...)
}

// result is what the Client needs for the hold.
func (c *callContext) result() (hooks []contract.Begin, wall *wallclock.Reading) {
	c.said.mu.Lock()
	defer c.said.mu.Unlock()
	return c.said.hooks, c.wall
}

// refused takes the leases that were handed over to the call: it has failed, and middleware has not released
// them.
func (c *callContext) refused() (all []contract.Lease) {
	c.said.mu.Lock()
	defer c.said.mu.Unlock()
	all, c.handed = c.handed, nil
	return all
}

// takes notes a lease that was handed over to the call.
func (c *callContext) takes(lease contract.Lease) {
	c.said.mu.Lock()
	defer c.said.mu.Unlock()
	c.handed = append(c.handed, lease)
}

// refuses takes the lease off the list. It is false if the list has no such lease.
func (c *callContext) refuses(token string) bool {
	if c == nil {
		return false
	}
	c.said.mu.Lock()
	defer c.said.mu.Unlock()
	before := len(c.handed)
	c.handed = slices.DeleteFunc(c.handed, func(l contract.Lease) bool { return l.Token == token })
	return len(c.handed) < before
}

type callKey struct{}

// callOf finds, behind the middleware, the call of the Client.
func callOf(ctx context.Context) (*callContext, effort, error) {
	c, _ := ctx.Value(callKey{}).(*callContext)
	if c == nil {
		return nil, effort{}, errNoCall
	}
	return c, effort{scoped: c.said.scoped, wait: c.wait}, nil
}

var errNoCall = outcome.Invalidf("middleware of locker.WithMiddleware dropped the values of its ctx; pass on that ctx, or one below it")
