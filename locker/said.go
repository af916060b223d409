package locker

import (
	"context"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/outcome"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// said is what a Client says to middleware of an Acquire, and the hooks that it collects: see [contract.Call].
type said struct {
	of        *effort // of the call of a Client; nil: of one attempt
	scoped    bool
	contended bool
	attempts  int
	hooks     []contract.Begin // those of inner middleware first
}

func (s *said) Scoped() bool    { return s.scoped }
func (s *said) Attempts() int   { return s.attempts }
func (s *said) Contended() bool { return s.contended }

func (s *said) OnHold(begin contract.Begin) {
	if s.hooks == nil && s.of != nil {
		s.hooks = s.of.few[:0]
	}
	s.hooks = append(s.hooks, begin)
}

// callContext is the ctx of a call that goes through middleware.
type callContext struct {
	context.Context
	ledger *cleanup.Ledger
	so     effort
}

func (c *callContext) Value(key any) any {
	switch key {
	case calls.DrainKey{}:
		return c.ledger
	case calls.Key{}:
		return &c.so.said
	}
	return c.Context.Value(key)
}

// effortOf finds, behind the middleware, the call of the Client.
func effortOf(ctx context.Context) (*effort, error) {
	if s, _ := ctx.Value(calls.Key{}).(*said); s != nil && s.of != nil {
		return s.of, nil
	}
	return nil, errNoCall
}

var errNoCall = outcome.Invalidf("middleware of locker.WithMiddleware dropped the values of its ctx; pass on that ctx, or one below it")
