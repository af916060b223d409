// Package redlock locks on a quorum of independent nodes, each a Locker of its own: the lock is held as long as enough of
// them hold it, so that it outlives nodes that fail. It is the algorithm of
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ ("Redlock"), generic over the strategy below.
//
// With n nodes and a quorum of w:
//
//	acquire   Acquire on all nodes at once, with one Token. Granted as soon as w have granted it, if TTL − elapsed − drift
//	          is still positive. Refused as soon as w can't be reached; then released on all nodes that may have it.
//	extend    Extend on all nodes at once. Only those count that still hold the Token; w of them, or nothing changes.
//	release   Release on all nodes at once. Done as soon as w have said so.
//
// A node that did not answer is not asked again before a probe is answered, as long as the others
// can make the quorum; where they can't, a few calls at once ask it, and the rest fail with an
// error that says that nothing was sent. What an attempt may have left on a node is removed when
// the attempt has failed or the lease is released, and never before: then a node that says that it
// has the token counts. Nothing is released on a node to which nothing was sent.
//
// No node is waited for longer than [WithNodeLimit], whatever its client library does. A node that answers after the
// decision is not lost: its grant counts at the next extension and is ended by the release, and if the attempt was refused
// meanwhile, or the release has begun, the grant is released by whoever receives it.
//
// # Which quorum
//
// The default, n/2+1, tolerates the most nodes that are down: n−w. It tolerates none that forgets a lock which is held: one
// that restarts without its data, is made to forget by FLUSHALL or eviction, or whose clock jumps ahead. A larger quorum
// gives up some of the first for the second:
//
//	n  w   nodes down   nodes that forget
//	3  2       1               0
//	3  3       0               2
//	5  3       2               0
//	5  4       1               2
//	5  5       0               4
//
// With w of n, 2w−n−1 nodes may forget during the life of one lease, and there is still one that
// both of two holders would need. Quarantine makes a node that restarts count as down for as long
// as a lease may live, instead of forgetful. By default a process notices restarts of the nodes
// that it used before; give the stores of a quorum the strict form (redisstore.WithQuarantine), which
// also covers processes that start after a restart.
//
// # What it does not promise
//
// Mutual exclusion rests on clocks that advance at the same rate within the drift, on every node and here. A holder that is
// paused past its lease learns of it at its next look at its context, not before. Grants have no number: what the nodes
// say of theirs is no order among quorums, so Fence is 0. [NewFenced] numbers them. Nodes that share a machine, a
// master or a power supply are not independent; backends.CheckNodes finds those that are one server.
package redlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that holds a lock while a quorum of nodes does. The nodes are independent servers, each under a
// strategy with leases, such as package single. That they are is for the caller to see to: backends.CheckNodes asks them.
// Nodes are named by their place in the list, from 1, in errors.
func New(nodes []locker.Locker, opts ...Option) (locker.Locker, error) {
	if err := distinct(nodes); err != nil {
		return nil, err
	}
	all := make([]node, len(nodes))
	for i, l := range nodes {
		all[i] = nodeOf(l, nil)
	}
	return build(all, opts)
}

// quorum is the Locker. It remembers only attempts that some nodes have not granted or refused,
// until they are released or their TTL is over.
type quorum struct {
	config
	nodes  []node
	flying flights
	rounds atomic.Int32 // callers that wait for nodes
}

// errReleased is an attempt whose token was released while it was under way.
var errReleased = errors.New("released while it was asked for")

// errUncertain is the vote of a node whose attempt failed or was never answered, and of which the
// quorum can't know that it leaves the cleanup to it: other software, or a node inside middleware.
// It has the lease now, but does not count for an extension: its own cleanup may come later.
var errUncertain = errors.New("its attempt was never answered, and its own cleanup may still delete the key")

// Acquire makes one attempt on all nodes. If it fails, the error has a [*QuorumError] with the vote of each; it matches
// [locker.ErrHeld] unless more nodes failed than the quorum can do without.
func (q *quorum) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	if err := req.Validate(); err != nil {
		return locker.Lease{}, err
	}
	if err := ctx.Err(); err != nil {
		return locker.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	req.Waiter = "" // a place with each node would keep everyone from a quorum: see Watch
	started := time.Now()
	f := q.flying.start(ctx, q, req)
	r := q.begin(ctx, min(q.limit, req.TTL), acquiring)
	defer r.end()
	e := q.elect(r, f)
	if r.ask(f.acquire, func(int) bool { return false }) {
		e.hear(ctx)
	} else {
		for i := range q.nodes {
			f.answered(i, untouched)
		}
		e.giveUp(errSilent, 0)
	}

	lease := locker.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Fence: e.fence, Granted: started, Expires: q.until(started, req.TTL), Quorum: locker.Quorum{Granted: e.landed, Size: len(q.nodes)},
	}
	kept := f.conclude(e.won() && !lease.Ended())
	if e.won() && !lease.Ended() && kept {
		return lease, nil
	}
	if ctx.Value(cleanup.ByCaller{}) == nil {
		f.abandon()
	} else {
		f.conclude(true) // it is a node of another quorum, which releases it
	}
	switch {
	case e.won() && !kept:
		return locker.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: errReleased}
	case e.won():
		return locker.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: instance.ErrLate}
	case ended(ctx) != nil:
		return locker.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: ended(ctx)}
	}
	return locker.Lease{}, q.refusal("acquire", req.Key, e.votes)
}

// Extend moves the end of the lease to ttl from now on the nodes that still hold it, unless it is later already.
// Fewer than the quorum leave the end as it was. If so many nodes have lost it that no quorum is left, the error
// matches [locker.ErrLost].
func (q *quorum) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	if err := lease.Validate("extend"); err != nil {
		return lease, err
	}
	err := locker.ValidateTTL(ttl)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return lease, &locker.Error{Op: "extend", Key: lease.Key, Err: err}
	}
	if !lease.Expires.IsZero() && lease.Ended() {
		return lease, locker.Lost(lease)
	}
	started := time.Now()
	// by a ttl that is short, the lease is just kept
	r := q.begin(ctx, min(q.limit, max(ttl, lease.Expires.Sub(started))), extending)
	defer r.end()
	r.ask(func(ctx context.Context, i int, then reply) {
		stack.Go(func() (uint64, error) {
			_, err := q.nodes[i].Extend(ctx, lease, ttl)
			if err == nil && !q.nodes[i].own && !q.flying.counts(lease.Token, i) {
				err = errUncertain
			}
			return 0, err
		}, errGone, then)
	}, func(int) bool { return false })
	b := q.poll(ctx, r, nil)
	switch {
	case b.granted >= q.need:
		extended := lease // a copy: nodes that have not answered yet are being asked about lease
		if until := q.until(started, ttl); until.After(lease.Expires) {
			extended.Expires = until
		}
		q.flying.prolong(lease.Token, ttl)
		return extended, nil
	case b.lost > q.spare():
		return lease, q.lost(lease, b.votes)
	case ended(ctx) != nil:
		return lease, &locker.Error{Op: "extend", Key: lease.Key, Err: ended(ctx)}
	}
	return lease, q.refusal("extend", lease.Key, b.votes)
}

// until is the end of a lease that was asked for at started, with the drift beyond what locker.Until allows for.
func (q *quorum) until(started time.Time, ttl time.Duration) time.Time {
	return locker.Until(started, ttl).Add(-time.Duration(float64(ttl) * (q.drift - DefaultDrift)))
}

// spare is how many nodes the quorum can do without.
func (q *quorum) spare() int { return len(q.nodes) - q.need }
