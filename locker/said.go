package locker

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// said is what a Client says to middleware of an Acquire, and the hooks that it collects: see [contract.Call].
type said struct {
	scoped bool

	mu        sync.Mutex // guards what follows
	contended bool
	attempts  int
	hooks     []contract.Begin // those of inner middleware first
}

func (s *said) Scoped() bool { return s.scoped }

func (s *said) Attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

func (s *said) Contended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contended
}

func (s *said) OnHold(begin contract.Begin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, begin)
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
	// middleware under this ctx is of the lease, and of no hold before: see waiting.Release.
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
	c.said.attempts, c.said.contended, c.wall = so.attempts, so.contended(), so.wall
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

// refuses takes one of them off the list, whoever has it then. It is false if the list has no such lease.
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
