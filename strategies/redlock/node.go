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
	raise    raise // nil: its grants have no number
	cleanups *cleanup.Group
}

// acquire and release do not wait: then is called with the answer, once, and does not wait either. A node that can be asked so needs
// no goroutine of its own for each question: what many ask it at once is sent by one.
func (n *node) acquire(ctx context.Context, req locker.Request, then func(locker.Lease, error)) {
	if s, ok := n.Locker.(instance.Starter); ok {
		s.StartAcquire(ctx, req, then)
		return
	}
	var lease locker.Lease
	inBackground(func() (err error) {
		lease, err = n.Acquire(ctx, req)
		return err
	}, func(err error) { then(lease, err) })
}

func (n *node) release(ctx context.Context, lease locker.Lease, then func(error)) {
	if s, ok := n.Locker.(instance.Starter); ok {
		s.StartRelease(ctx, lease, then)
		return
	}
	inBackground(func() error { return n.Release(ctx, lease) }, then)
}

// inBackground calls then also if the call ends its goroutine.
func inBackground(call func() error, then func(error)) {
	go func() {
		err := errGone
		defer func() { then(err) }()
		stack.Grow()
		err = call()
	}()
}

// errGone is what is known of a call that has ended its goroutine: nothing, and nobody else will clean up.
var errGone = errors.New("it ended the goroutine that asked it")
