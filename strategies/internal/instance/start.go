package instance

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/internal/starting"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// A Starter is a Locker with calls that return before the answer comes. Package starting describes
// how then is called. The request must be valid and have no Waiter; the lease must be valid. The
// caller must clean up after an attempt whose outcome is unknown.
type Starter interface {
	locker.Locker
	StartAcquire(ctx context.Context, req contract.Request, then func(contract.Lease, error))
	StartRelease(ctx context.Context, lease contract.Lease, then func(error))
}

type started struct {
	*instance
	store starting.Store
}

var _ Starter = (*started)(nil)

func (s *started) StartAcquire(ctx context.Context, req contract.Request, then func(contract.Lease, error)) {
	if err := ctx.Err(); err != nil {
		go then(contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err})
		return
	}
	started := time.Now()
	s.store.StartSetNX(ctx, req.Key, req.Token, req.TTL, func(res backends.Result, err error) {
		lease, err := granted(req, started, res, err)
		then(outcome(req, lease, res, err))
	})
}

func (s *started) StartRelease(ctx context.Context, lease contract.Lease, then func(error)) {
	s.store.StartDeleteIf(ctx, lease.Key, lease.Token, func(ok bool, err error) { then(released(lease, ok, err)) })
}
