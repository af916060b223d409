package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// Release ends the lease on all nodes. It is done when a quorum of nodes has ended it: the other
// nodes can't make a quorum. They are asked again in the background until they answer, or the lease
// has ended by itself.
func (q *quorum) Release(ctx context.Context, lease contract.Lease) error {
	if err := lease.Validate(); err != nil {
		return instance.Fault("release", lease.Key, err)
	}
	if err := ctx.Err(); err != nil {
		return &locker.Error{Op: "release", Key: lease.Key, Err: err}
	}
	flight, unasked := q.flying.end(lease.Token, nil)
	rest := q.leftovers(ctx, lease, flight, max(time.Until(lease.Expires), untilGone))
	limit := q.limit
	if left := time.Until(lease.Expires); left > 0 {
		limit = min(limit, left)
	}
	r := q.begin(ctx, limit, releasing)
	defer r.end()
	for _, n := range unasked {
		_ = rest.heard(n, nil)
	}
	r.ask(func(ctx context.Context, n *node, then reply) {
		// release after any answer: another attempt may have got the lease there
		flight.await(n, func(said response) { rest.ask(ctx, n, said, then) })
	}, unasked...)
	b := q.poll(ctx, r, rest, unasked...)
	switch {
	case b.lost > q.spare():
		rest.release(r) // fewer nodes than a quorum can keep all other callers from one
		b.findCauses(ctx, lease)
		return q.lost(lease, b.votes)
	case b.granted+b.lost >= q.need: // and too few nodes have lost it to show that it had ended before
		rest.release(r)
		return nil
	case ended(ctx) != nil:
		return &locker.Error{Op: "release", Key: lease.Key, Err: ended(ctx)}
	}
	return q.noQuorum("release", lease.Key, b.votes)
}

// findCauses asks the nodes that have lost the lease whether it was evicted there, by an extension that
// moves nothing. A release can't tell: it also asks nodes that never granted the lease, and each of them
// would look for a cause at each release.
func (b *ballot) findCauses(ctx context.Context, lease contract.Lease) {
	left := time.Until(lease.Expires)
	if left <= 0 || calls.IsNode(ctx) {
		return // the lease has ended by itself, or this is a node of another quorum
	}
	var others []*node
	for _, n := range b.nodes {
		if v := b.vote(n); v.Outcome != Lost || errors.Is(v.Err, errNothing) {
			others = append(others, n)
		}
	}
	r := b.begin(ctx, min(b.limit, left), extending)
	defer r.end()
	r.ask(func(ctx context.Context, n *node, then reply) {
		stack.Go(func() (uint64, error) {
			_, err := n.Extend(ctx, lease, contract.MinTTL)
			return 0, err
		}, errGone, then)
	}, others...)
	for range len(b.nodes) - len(others) - len(r.held) {
		a, ok := r.next(ctx)
		if !ok {
			return
		}
		if errors.As(a.err, new(*locker.EvictedError)) {
			b.vote(a.node).Err = a.err
		}
	}
}

// untilGone is how long, at least, the nodes may hold the rest of a lease. An extension that failed
// as a whole may have moved the end on some nodes, and a lease need not tell its end.
const untilGone = 30 * time.Second

// leftovers are the nodes that a release has not reached. It cleans them up once the release is
// done. If the release fails as a whole, its caller repeats it instead.
type leftovers struct {
	ctx    context.Context
	lease  contract.Lease
	flight *flight   // which may still wait for answers, or nil
	until  time.Time // when the nodes forget by themselves

	mu      sync.Mutex
	parts   []leftover  // by node
	done    bool        // the release is done, so that cleanups may begin
	limit   *time.Timer // starts the cleanups of nodes that are silent then
	pending func()      // ends the delay of Drain for the silent nodes, which lasts until limit
}

// leftover is what one node may still have of the lease.
type leftover struct {
	*node
	said  reached
	doubt bool            // a grant may come later than the release
	late  context.Context // done when it can't any more; nil: nobody knows
}

type reached byte

const (
	noAnswer reached = iota
	failed
	settled // it is free, or its cleanup has begun
)

func (q *quorum) leftovers(ctx context.Context, lease contract.Lease, f *flight, ttl time.Duration) *leftovers {
	l := &leftovers{ctx: ctx, lease: lease, flight: f, until: time.Now().Add(ttl), parts: make([]leftover, 0, len(q.nodes))}
	for _, n := range q.nodes {
		l.parts = append(l.parts, leftover{node: n})
	}
	return l
}

// ask releases on a node. said is its answer to the attempt; the attempt itself takes care of the
// answer of a silent node.
func (l *leftovers) ask(ctx context.Context, n *node, said response, then reply) {
	l.may(n, said)
	n.release(ctx, l.lease, func(err error) { then(0, l.heard(n, err)) })
}

// may notes the answer of a node to the attempt, before its release or cleanup.
func (l *leftovers) may(n *node, said response) {
	late := l.flight.late(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts[n.index].doubt, l.parts[n.index].late = said == unknown, late
}

// heard notes the answer of a node to the release, and returns it.
func (l *leftovers) heard(n *node, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.parts[n.index]
	switch {
	case err == nil || errors.Is(err, locker.ErrLost):
		if p.doubt && p.said != settled {
			p.server.Confirm(l.ctx, l.entry(p, time.Until(l.until)))
		}
		p.said = settled
	case p.said == noAnswer:
		p.said = failed
	}
	if l.done {
		l.tell(failed)
	}
	if l.limit != nil && !l.any(noAnswer) && l.limit.Stop() {
		l.pending()
	}
	return err
}

// miss notes that a node is not asked.
func (l *leftovers) miss(n *node) {
	l.may(n, l.flight.miss(n))
	_ = l.heard(n, errSilent)
}

// release is called when r asks no more nodes. A client library may wait seconds for a reply that
// was lost. So a node that is silent at the limit is cleaned up while its call still hangs.
func (l *leftovers) release(r *round) {
	for _, n := range r.held {
		l.miss(n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	l.tell(failed)
	if l.any(noAnswer) {
		end, _ := r.ctx.Deadline()
		l.limit = time.AfterFunc(time.Until(end), l.late)
		l.pending = contract.DelayDrain(l.ctx)
	}
}

func (l *leftovers) late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(noAnswer)
	l.pending() // from here on their cleanups delay it
}

// tell begins the cleanups of the nodes from which this was heard.
func (l *leftovers) tell(said reached) {
	for i := range l.parts {
		p := &l.parts[i]
		if p.said != said {
			continue
		}
		p.said = settled
		if left := time.Until(l.until); left > 0 {
			p.server.Add(l.ctx, l.entry(p, left))
		}
	}
}

// entry is the cleanup of a node.
func (l *leftovers) entry(p *leftover, ttl time.Duration) cleanup.Entry {
	e := p.cleanup(l.ctx, l.lease, ttl, !p.doubt)
	e.Late = p.late
	return e
}

func (l *leftovers) any(said reached) bool {
	return slices.ContainsFunc(l.parts, func(p leftover) bool { return p.said == said })
}
