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
	rest := q.leftovers(ctx, lease, max(time.Until(lease.Expires), untilGone))
	limit := q.limit
	if left := time.Until(lease.Expires); left > 0 {
		limit = min(limit, left)
	}
	r := q.begin(ctx, limit, q.turns())
	defer r.leave()
	r.ask(func(ctx context.Context, i int, then reply) {
		release := func() {
			q.nodes[i].release(ctx, lease, func(err error) { then(0, rest.heard(i, err)) })
		}
		if flight == nil {
			release()
			return
		}
		flight.await(i, func(response) { release() }) // whatever it was: the lease may have been found there by another attempt
	})
	b := q.poll(ctx, r)
	switch {
	case b.lost > q.spare():
		rest.release(r) // fewer than a quorum can keep everyone else from one
		return q.lost(lease, b.votes)
	case b.granted+b.lost >= q.need: // all of them had it, or nobody has shown that it had ended
		rest.release(r)
		return nil
	case ctx.Err() != nil:
		return &locker.Error{Op: "release", Key: lease.Key, Err: ctx.Err()}
	}
	return q.refusal("release", lease.Key, b.votes)
}

// untilGone is how long the nodes may hold what is left of a lease, at least: an extension that failed as a whole may have
// moved the end on some of them, and a lease need not tell its end.
const untilGone = 30 * time.Second

// leftovers are the nodes that a release has not reached. While it has failed as a whole, that is for its caller to repeat.
type leftovers struct {
	*quorum
	ctx   context.Context
	lease locker.Lease
	until time.Time // when the nodes forget by themselves

	mu     sync.Mutex
	said   []reached // by node
	silent int
	done   bool        // a quorum is free
	limit  *time.Timer // for those that are silent then
}

type reached byte

const (
	noAnswer reached = iota
	failed
	settled // it is free, or told again in the background
)

func (q *quorum) leftovers(ctx context.Context, lease locker.Lease, ttl time.Duration) *leftovers {
	n := len(q.nodes)
	return &leftovers{quorum: q, ctx: ctx, lease: lease, until: time.Now().Add(ttl), said: make([]reached, n), silent: n}
}

// heard notes what a node has answered, and returns it.
func (l *leftovers) heard(i int, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent--; l.silent == 0 && l.limit != nil {
		l.limit.Stop()
	}
	switch {
	case err == nil || errors.Is(err, locker.ErrLost):
		l.said[i] = settled
	case l.said[i] == noAnswer:
		l.said[i] = failed
	}
	if l.done {
		l.tell(failed)
	}
	return err
}

// release is called when no more is asked of the nodes by r. A client library may go on waiting for a reply that was lost,
// for seconds: what is silent at the limit is told again beside the call that hangs.
func (l *leftovers) release(r *round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	l.tell(failed)
	if l.silent > 0 {
		end, _ := r.ctx.Deadline()
		l.limit = time.AfterFunc(time.Until(end), l.late)
	}
}

func (l *leftovers) late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(noAnswer)
}

func (l *leftovers) tell(which reached) {
	for i, said := range l.said {
		if said == which {
			l.said[i] = settled
			l.settle(l.ctx, i, l.lease, time.Until(l.until))
		}
	}
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
