package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// Release ends the lease on all nodes. It is done when a quorum has ended it: what is left on the others can't make one.
// Those are told again in the background until they answer, or the lease has ended by itself.
func (q *quorum) Release(ctx context.Context, lease locker.Lease) error {
	if err := lease.Validate("release"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &locker.Error{Op: "release", Key: lease.Key, Err: err}
	}
	flight := q.flying.end(lease.Token)
	rest := leftovers{quorum: q, ctx: ctx, lease: lease}
	limit := q.limit
	if left := time.Until(lease.Expires); left > 0 {
		limit = min(limit, left)
	}
	r := q.begin(ctx, limit, q.turns())
	defer r.leave()
	r.ask(func(ctx context.Context, i int) (uint64, error) {
		if flight != nil {
			_ = flight.await(i) // whatever it was: the lease may have been found there by another attempt
		}
		err := q.nodes[i].Release(ctx, lease)
		if err != nil && !errors.Is(err, locker.ErrLost) {
			rest.add(i)
		}
		return 0, err
	})
	b := q.poll(ctx, r)
	switch {
	case b.lost > q.spare():
		rest.release() // fewer than a quorum can keep everyone else from one
		return q.lost(lease, b.votes)
	case b.granted+b.lost >= q.need: // all of them had it, or nobody has shown that it had ended
		rest.release()
		return nil
	case ctx.Err() != nil:
		return &locker.Error{Op: "release", Key: lease.Key, Err: ctx.Err()}
	}
	return q.refusal("release", lease.Key, b.votes)
}

// leftovers are the nodes that a release has not reached. While it has failed as a whole, that is for its caller to repeat.
type leftovers struct {
	*quorum
	ctx   context.Context
	lease locker.Lease

	mu    sync.Mutex
	nodes []int
	done  bool // a quorum is free
}

func (l *leftovers) add(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		l.settle(l.ctx, i, l.lease, untilGone(l.lease))
		return
	}
	l.nodes = append(l.nodes, i)
}

func (l *leftovers) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	for _, i := range l.nodes {
		l.settle(l.ctx, i, l.lease, untilGone(l.lease))
	}
}

// untilGone is how long the nodes may hold what is left of lease. An extension that failed as a whole may have moved the
// end on some of them, and a lease need not tell its end.
func untilGone(lease locker.Lease) time.Duration {
	return max(time.Until(lease.Expires), 30*time.Second)
}

// settle releases on one node in the background, until it answers.
func (q *quorum) settle(ctx context.Context, i int, lease locker.Lease, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	q.nodes[i].cleanups.Settle(ctx, ttl, func(ctx context.Context) error {
		err := q.nodes[i].Release(ctx, lease)
		if errors.Is(err, locker.ErrLost) {
			return nil
		}
		return err
	})
}
