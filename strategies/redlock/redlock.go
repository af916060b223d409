// Package redlock keeps a lock on a quorum of independent nodes, each of them a Locker. The lock is
// held as long as a quorum of the nodes holds it, so it survives nodes that fail. The algorithm is
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ ("Redlock"). It works
// over any strategy with leases.
//
// With n nodes and a quorum of w:
//
//	acquire   Acquire on all nodes at once, with one Token. Granted as soon as w nodes have granted
//	          it, if TTL − elapsed − drift is still positive. Fails as soon as w can't be reached;
//	          then Release on all nodes that may have it.
//	extend    Extend on all nodes at once. Only nodes that still hold the Token count. Fewer than w
//	          change nothing.
//	release   Release on all nodes at once. Done as soon as w nodes have answered that it is free.
//
// A node that did not answer is not asked again until a probe is answered, as long as the other
// nodes can make the quorum. If they can't, a few calls at once ask the silent node. All other
// calls fail with an error that says that nothing was sent.
//
// What an attempt may have left on a node is removed when the attempt has failed or the lease is
// released, and never before. So a node that says that it holds the token counts. Nothing is
// released on a node to which nothing was sent.
//
// The quorum waits for no node longer than [WithNodeLimit], whatever the node's client library
// does. A node may grant after the quorum has decided. If the lease is held, that grant counts at
// the next extension and ends with the release. If the attempt has failed, or the release has
// begun, the grant is released as soon as it arrives.
//
// # Which quorum
//
// The default quorum, n/2+1, tolerates the most nodes that are down: n−w. It tolerates no node that
// forgets a lock which is held. A node forgets if it restarts without its data, by FLUSHALL, by
// eviction, or if its clock jumps ahead. A larger quorum tolerates fewer nodes down and more that
// forget:
//
//	n  w   nodes down   nodes that forget
//	3  2       1               0
//	3  3       0               2
//	5  3       2               0
//	5  4       1               2
//	5  5       0               4
//
// 2w−n−1 nodes may forget during the life of one lease: any two quorums then still share a node
// that remembers. With quarantine, a node that restarts counts as down, not as forgetful, for as
// long as a lease may live. By default a process notices restarts only of the nodes that it used
// before. Give the stores of a quorum the strict form (redisstore.WithQuarantine). It also covers
// processes that start after a restart.
//
// # What it does not promise
//
// Mutual exclusion needs clocks that advance at the same rate within the drift, on every node and
// in this process. A holder that is paused past its lease learns of it when it next looks at its
// context, not before. Grants have no number, so Fence is 0: the numbers of the nodes do not put
// quorums in an order. [NewFenced] numbers them. Nodes that share a machine, a master or a power
// supply are not independent. backends.CheckNodes finds nodes that are the same server.
package redlock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/stack"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that holds a lock while a quorum of nodes holds it. The nodes must be
// independent servers, each under a strategy with leases, such as package single. New does not
// check this; backends.CheckNodes does. The readers and the writers of package rwlock may be nodes
// too. A semaphore is refused by the first Acquire: a quorum can't count permits. Errors name nodes
// by their position in the list, from 1.
func New(nodes []locker.Locker, opts ...Option) (locker.Locker, error) {
	if err := distinct(nodes); err != nil {
		return nil, err
	}
	all := make([]*node, len(nodes))
	for i, l := range nodes {
		all[i] = nodeOf(l, nil)
	}
	return build(all, opts)
}

// quorum is the Locker. It remembers an attempt only while some node has neither granted it nor
// reported the lock as held, and at most until its release or for its TTL.
type quorum struct {
	config
	nodes  []*node
	flying flights
	rounds atomic.Int32 // calls that wait for nodes
}

// errReleased says that the token was released while its attempt was under way.
var errReleased = errors.New("released while its attempt was under way")

// errUncertain is the vote of a node that has the lease although its attempt failed or was never
// answered, if the node may have a cleanup of its own: other software, or a node inside middleware.
// The node does not count for an extension, since its own cleanup may still delete the key.
var errUncertain = errors.New("its attempt was never answered, and its own cleanup may still delete the key")

// Prompt tells that a call ends by the node limit, or by the TTL.
func (q *quorum) Prompt() bool { return true }

// Acquire makes one attempt on all nodes. If it fails, the error contains a [*QuorumError] with the
// vote of each node. It matches [locker.ErrHeld] unless more nodes failed than the quorum can do
// without.
func (q *quorum) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	if err := req.Validate(); err != nil {
		return contract.Lease{}, instance.Fault("acquire", req.Key, err)
	}
	return q.attempt(ctx, "", req)
}

// Transfer takes over a hold on at least as many nodes as the quorum. It makes one attempt, and fails
// as Acquire does.
func (q *quorum) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	if err := req.ValidateTransfer(from); err != nil {
		return contract.Lease{}, instance.Fault("acquire", req.Key, err)
	}
	return q.attempt(ctx, from, req)
}

// attempt asks all nodes. from is the token of the hold to take over; empty: of none.
func (q *quorum) attempt(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	if err := ctx.Err(); err != nil {
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: err}
	}
	req.Waiter = "" // positions with single nodes would keep every waiter from a quorum: see Watch
	started := time.Now()
	f := q.flying.start(ctx, q, from, req)
	r := q.begin(ctx, min(q.limit, req.TTL), acquiring)
	defer r.end()
	e := q.elect(r, f)
	if r.ask(f.acquire) {
		e.hear(ctx)
	} else {
		for _, n := range q.nodes {
			f.answered(n, untouched)
		}
		e.giveUp(errSilent, 0)
	}

	lease := contract.Lease{
		Key: req.Key, Token: req.Token, Owner: req.Owner,
		Fence: e.fence, Granted: started, Expires: q.until(started, req.TTL), Quorum: contract.Quorum{Granted: int32(e.landed), Size: int32(len(q.nodes))},
		Share: contract.Share{Room: int(f.room.Load())},
	}
	if e.won() {
		f.win()
	} else {
		f.doubt(e.votes)
	}
	kept := f.conclude(e.won() && !lease.Ended())
	if e.won() && !lease.Ended() && kept {
		return lease, nil
	}
	if !calls.IsNode(ctx) {
		f.abandon()
	} else {
		f.conclude(true) // this is a node of another quorum, which releases it
	}
	switch {
	case e.won() && !kept:
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: errReleased}
	case e.won():
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: instance.ErrLate}
	case ended(ctx) != nil:
		return contract.Lease{}, &locker.Error{Op: "acquire", Key: req.Key, Err: ended(ctx)}
	}
	return contract.Lease{}, q.noQuorum("acquire", req.Key, e.votes)
}

// Extend moves the end of the lease to ttl from now on the nodes that still hold it, unless it is
// later already. If fewer than the quorum extend it, the returned lease is unchanged. If so many
// nodes have lost it that no quorum is left, the error matches [locker.ErrLost].
func (q *quorum) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	if err := lease.Validate(); err != nil {
		return lease, instance.Fault("extend", lease.Key, err)
	}
	err := contract.ValidateTTL(ttl)
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
	// with a short ttl the extension only keeps the lease, so it may take as long as the lease
	// lasts
	r := q.begin(ctx, min(q.limit, max(ttl, lease.Expires.Sub(started))), extending)
	defer r.end()
	r.ask(func(ctx context.Context, n *node, then reply) {
		stack.Go(func() (uint64, error) {
			_, err := n.Extend(ctx, lease, ttl)
			if err == nil && !n.own && !q.flying.counts(lease.Token, n) {
				err = errUncertain
			}
			return 0, err
		}, errGone, then)
	})
	b := q.poll(ctx, r, nil)
	switch {
	case b.granted >= q.need:
		extended := lease // a copy: calls to nodes that have not answered yet read lease
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
	return lease, q.noQuorum("extend", lease.Key, b.votes)
}

// until returns the end of a lease that was asked for at started. It subtracts the drift beyond the
// part that contract.Until subtracts.
func (q *quorum) until(started time.Time, ttl time.Duration) time.Time {
	return contract.Until(started, ttl).Add(-time.Duration(float64(ttl) * (q.drift - DefaultDrift)))
}

// spare returns how many nodes the quorum can do without.
func (q *quorum) spare() int { return len(q.nodes) - q.need }
