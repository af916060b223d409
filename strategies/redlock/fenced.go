package redlock

import (
	"context"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// NewFenced returns a Locker that numbers its grants: if one was answered before another was asked for, the later one has
// the greater Fence, and no two are equal. No clock occurs in that, so it holds also when leases overlap; but only as long as
// no more than 2w−n−1 nodes have ever lost their counters.
//
// The greatest or the sum of what the nodes count is no such number: two quorums can overlap in a node that was behind. So
// the quorum is brought to one number before it counts:
//
//	acquire   on each node, if it is free: SET key token NX PX ttl, and INCR its counter; it returns the counter
//	          m is the greatest of the first w; nodes that returned m have landed
//	          on each of the others: counter = m, if key holds token and counter ≤ m; then it has landed too
//	          granted with Fence m once w nodes have landed
//
// Of two grants, some node landed both. Its two holds are disjoint, and it had the first number, or a greater one, when the
// second began: the second one's is at least one more. While the nodes agree, this costs no second round.
//
// Here quarantine does not help, since counters matter for longer than leases: use an
// append-only file that is synced always, or a larger quorum. The counters have no expiry; but package fenced gives them
// one, so do not lock a key with both on one node.
//
// The protocol is checked exhaustively, with messages that come late or never and holds that end at any moment, and so are
// the variants that fail: see TestFencesOfAQuorumAreDistinctAndOrderedInAllStates.
func NewFenced(stores []backends.FencedStore, opts ...Option) (locker.Locker, error) {
	if err := distinct(stores); err != nil {
		return nil, err
	}
	all := make([]node, len(stores))
	for i, s := range stores {
		all[i] = numbered(s)
	}
	return build(all, opts)
}

// raise brings a node to the number of the lease; errOvertaken if it has moved on.
type raise func(ctx context.Context, lease locker.Lease, to uint64) error

func numbered(s backends.FencedStore) node {
	return nodeOf(instance.New(s, s.SetNXFenced), func(ctx context.Context, lease locker.Lease, to uint64) error {
		landed, err := s.RaiseFence(ctx, lease.Key, lease.Token, to)
		if err == nil && !landed {
			return errOvertaken
		}
		return err
	})
}
