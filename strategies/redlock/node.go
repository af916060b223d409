package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// node is one node of the quorum.
type node struct {
	locker.Locker
	index  int   // in all lists by node
	raise  raise // nil: grants have no number
	own    bool  // it leaves the cleanup to the quorum; other nodes may clean up late by themselves
	server *cleanup.Queue
}

func nodeOf(l locker.Locker, r raise) *node {
	return &node{Locker: l, raise: r, own: instance.Is(l), server: cleanup.New(false)}
}

// acquire and release do not wait: then is called once with the answer and must not block. An
// [instance.Starter] needs no goroutine for each call; its store sends many calls from one
// goroutine.
func (n *node) acquire(ctx context.Context, from string, req contract.Request, then func(contract.Lease, error)) {
	if s, ok := n.Locker.(instance.Starter); ok && from == "" {
		s.StartAcquire(ctx, req, then)
		return
	}
	stack.Go(func() (contract.Lease, error) { return n.ask(ctx, from, req) }, errGone, then)
}

// ask acquires, or takes over the hold of from.
func (n *node) ask(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	if from != "" {
		return n.Transfer(ctx, from, req)
	}
	return n.Acquire(ctx, req)
}

// again makes another attempt after removing what earlier attempts of this process may have left.
func (n *node) again(ctx context.Context, from string, req contract.Request, then func(contract.Lease, error)) {
	stack.Go(func() (contract.Lease, error) {
		if _, err := n.server.Settle(ctx, req.Key); err != nil {
			return contract.Lease{}, &cleanup.GhostError{Err: err}
		}
		return n.ask(ctx, from, req)
	}, errGone, then)
}

func (n *node) release(ctx context.Context, lease contract.Lease, then func(error)) {
	if s, ok := n.Locker.(instance.Starter); ok {
		s.StartRelease(ctx, lease, then)
		return
	}
	stack.Go(func() (none, error) { return none{}, n.Release(ctx, lease) }, errGone, func(_ none, err error) { then(err) })
}

type none struct{}

// cleanup removes the lease from the node, and delays Drain: see [contract.DelayDrain]. known says
// whether the node answered the attempt.
func (n *node) cleanup(ctx context.Context, lease contract.Lease, ttl time.Duration, known bool) cleanup.Entry {
	return cleanup.Entry{Key: lease.Key, TTL: ttl, Known: known, Done: contract.DelayDrain(ctx), Remove: func(ctx context.Context) error {
		if err := n.Release(ctx, lease); !errors.Is(err, locker.ErrLost) {
			return err
		}
		return nil
	}}
}

// errGone is the outcome of a call that ended its goroutine. It is unknown, and nobody else cleans
// up.
var errGone = errors.New("the node ended the goroutine of the call")
