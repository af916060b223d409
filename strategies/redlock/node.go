package redlock

import (
	"context"
	"errors"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// node is one of the quorum.
type node struct {
	locker.Locker
	raise  raise // nil: its grants have no number
	own    bool  // it leaves the cleanup to the quorum; any other may clean up late by itself
	server *cleanup.Queue
}

func nodeOf(l locker.Locker, r raise) node {
	return node{Locker: l, raise: r, own: instance.Is(l), server: new(cleanup.Queue)}
}

// acquire and release do not wait: then is called with the answer, once, and does not wait either. A node that can be asked so needs
// no goroutine of its own for each question: what many ask it at once is sent by one.
func (n *node) acquire(ctx context.Context, req locker.Request, then func(locker.Lease, error)) {
	if s, ok := n.Locker.(instance.Starter); ok {
		s.StartAcquire(ctx, req, then)
		return
	}
	stack.Go(func() (locker.Lease, error) { return n.Acquire(ctx, req) }, errGone, then)
}

// again asks once more when what earlier attempts of this process may have left is removed.
func (n *node) again(ctx context.Context, req locker.Request, then func(locker.Lease, error)) {
	stack.Go(func() (locker.Lease, error) {
		if _, err := n.server.Settle(ctx, req.Key); err != nil {
			return locker.Lease{}, &cleanup.GhostError{Err: err}
		}
		return n.Acquire(ctx, req)
	}, errGone, then)
}

func (n *node) release(ctx context.Context, lease locker.Lease, then func(error)) {
	if s, ok := n.Locker.(instance.Starter); ok {
		s.StartRelease(ctx, lease, then)
		return
	}
	stack.Go(func() (none, error) { return none{}, n.Release(ctx, lease) }, errGone, func(_ none, err error) { then(err) })
}

type none struct{}

// errGone is what is known of a call that has ended its goroutine: nothing, and nobody else will clean up.
var errGone = errors.New("it ended the goroutine that asked it")
