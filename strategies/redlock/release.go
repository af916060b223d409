package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
)

// Release ends the lease on all nodes. It is done when a quorum of nodes has ended it: the other
// nodes can't make a quorum. They are asked again in the background until they answer, or the lease
// has ended by itself.
func (q *quorum) Release(ctx context.Context, lease locker.Lease) error {
	if err := lease.Validate("release"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &locker.Error{Op: "release", Key: lease.Key, Err: err}
	}
	flight, unasked := q.flying.end(lease.Token)
	rest := q.leftovers(ctx, lease, flight, max(time.Until(lease.Expires), untilGone))
	limit := q.limit
	if left := time.Until(lease.Expires); left > 0 {
		limit = min(limit, left)
	}
	r := q.begin(ctx, limit, releasing)
	defer r.end()
	for _, i := range unasked {
		_ = rest.heard(i, nil)
	}
	r.ask(func(ctx context.Context, i int, then reply) {
		release := func(said response) {
			rest.may(i, said)
			q.nodes[i].release(ctx, lease, func(err error) { then(0, rest.heard(i, err)) })
		}
		if flight == nil {
			release(granted)
			return
		}
		flight.await(i, release) // release after any answer: another attempt may have got the lease there
	}, func(i int) bool { return slices.Contains(unasked, i) })
	b := q.poll(ctx, r, rest, unasked...)
	switch {
	case b.lost > q.spare():
		rest.release(r) // fewer nodes than a quorum can keep all other callers from one
		q.findCauses(ctx, lease, b.votes)
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
func (q *quorum) findCauses(ctx context.Context, lease locker.Lease, votes []Vote) {
	left := time.Until(lease.Expires)
	if left <= 0 || ctx.Value(cleanup.ByCaller{}) != nil {
		return // the lease has ended by itself, or this is a node of another quorum
	}
	var lost []int
	for i, v := range votes {
		if v.Outcome == Lost && !errors.Is(v.Err, errNothing) {
			lost = append(lost, i)
		}
	}
	r := q.begin(ctx, min(q.limit, left), extending)
	defer r.end()
	r.ask(func(ctx context.Context, i int, then reply) {
		stack.Go(func() (uint64, error) {
			_, err := q.nodes[i].Extend(ctx, lease, locker.MinTTL)
			return 0, err
		}, errGone, then)
	}, func(i int) bool { return !slices.Contains(lost, i) })
	for range len(lost) - len(r.held) {
		a, ok := r.next(ctx)
		if !ok {
			return
		}
		if errors.As(a.err, new(*locker.EvictedError)) {
			votes[a.node].Err = a.err
		}
	}
}

// untilGone is how long, at least, the nodes may hold the rest of a lease. An extension that failed
// as a whole may have moved the end on some nodes, and a lease need not tell its end.
const untilGone = 30 * time.Second

// leftovers are the nodes that a release has not reached. It cleans them up once the release is
// done. If the release fails as a whole, its caller repeats it instead.
type leftovers struct {
	*quorum
	ctx    context.Context
	lease  locker.Lease
	flight *flight   // which may still wait for answers, or nil
	until  time.Time // when the nodes forget by themselves

	mu      sync.Mutex
	said    []reached // by node
	doubt   []bool    // by node: a grant may come later than the release
	silent  int
	done    bool            // the release is done, so that cleanups may begin
	limit   *time.Timer     // starts the cleanups of nodes that are silent then
	pending *cleanup.Ledger // counts the silent nodes as one cleanup until limit
}

type reached byte

const (
	noAnswer reached = iota
	failed
	settled // it is free, or its cleanup has begun
)

func (q *quorum) leftovers(ctx context.Context, lease locker.Lease, f *flight, ttl time.Duration) *leftovers {
	n := len(q.nodes)
	return &leftovers{
		quorum: q, ctx: ctx, lease: lease, flight: f, until: time.Now().Add(ttl),
		said: make([]reached, n), doubt: make([]bool, n), silent: n,
	}
}

// may notes the answer of a node to the attempt, before the node is asked to release.
func (l *leftovers) may(i int, said response) {
	if said == unknown { // the attempt itself takes care of the answer of a silent node
		l.mu.Lock()
		l.doubt[i] = true
		l.mu.Unlock()
	}
}

// heard notes the answer of a node to the release, and returns it.
func (l *leftovers) heard(i int, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.silent--; l.silent == 0 && l.limit != nil && l.limit.Stop() {
		l.pending.Done()
	}
	switch {
	case err == nil || errors.Is(err, locker.ErrLost):
		if l.doubt[i] && l.said[i] != settled {
			l.nodes[i].server.Confirm(l.ctx, l.cleanup(i, l.lease, time.Until(l.until), false))
		}
		l.said[i] = settled
	case l.said[i] == noAnswer:
		l.said[i] = failed
	}
	if l.done {
		l.tell(failed)
	}
	return err
}

// release is called when r asks no more nodes. A client library may wait seconds for a reply that
// was lost. So a node that is silent at the limit is cleaned up while its call still hangs.
func (l *leftovers) release(r *round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	for _, i := range r.held {
		l.flight.miss(i)
		l.said[i] = failed
		l.silent--
	}
	l.tell(failed)
	if l.silent > 0 {
		end, _ := r.ctx.Deadline()
		l.limit = time.AfterFunc(time.Until(end), l.late)
		l.pending = cleanup.From(l.ctx)
		l.pending.Begin()
	}
}

func (l *leftovers) late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell(noAnswer)
	l.pending.Done() // from here on their cleanups count
}

func (l *leftovers) tell(which reached) {
	for i, said := range l.said {
		if said != which {
			continue
		}
		l.said[i] = settled
		if left := time.Until(l.until); left > 0 {
			l.nodes[i].server.Add(l.ctx, l.cleanup(i, l.lease, left, !l.doubt[i]))
		}
	}
}

// cleanup removes the lease from a node. known says whether the node answered the attempt.
func (q *quorum) cleanup(i int, lease locker.Lease, ttl time.Duration, known bool) cleanup.Entry {
	n := &q.nodes[i]
	return cleanup.Entry{Key: lease.Key, TTL: ttl, Known: known, Remove: func(ctx context.Context) error {
		if err := n.Release(ctx, lease); !errors.Is(err, locker.ErrLost) {
			return err
		}
		return nil
	}}
}
