package redlock

import (
	"context"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// NewFenced returns a Locker that numbers its grants. No two numbers are equal. If one grant was
// answered before another was asked for, the later grant has the greater Fence. This does not
// depend on clocks, so it holds also when leases overlap. It holds only as long as no more than
// 2w−n−1 nodes have ever lost their counters.
//
// Neither the greatest of the nodes' counters nor their sum is such a number: two quorums can share
// only a node that was behind. So the quorum is brought to one number before the grant counts:
//
//	acquire   on each node, if it is free: SET key token NX PX ttl, and INCR its counter; the node
//	          returns the counter
//	          m is the greatest counter of the first w nodes; nodes that returned m have landed
//	          on each other node: counter = m, if key holds token and counter ≤ m; then it has
//	          landed too
//	          granted with Fence m once w nodes have landed
//
// For any two grants there is a node that landed in both. The two holds on that node do not overlap
// in time. When the second one began, the node had the first number or a greater one. So the second
// number is greater by at least one. While the nodes agree, this costs no second round.
//
// Quarantine does not help here, since counters matter for longer than leases. Use an append-only
// file that is synced always, or a larger quorum. The counters have no expiry, but those of package
// fenced do. So do not lock a key with both on one node.
//
// The protocol is checked exhaustively, with messages that come late or never and holds that end at
// any moment. Its variants that fail are checked too: see
// TestFencesOfAQuorumAreDistinctAndOrderedInAllStates.
func NewFenced(stores []backends.FencedStore, opts ...Option) (locker.Locker, error) {
	if err := distinct(stores); err != nil {
		return nil, err
	}
	all := make([]*node, len(stores))
	for i, s := range stores {
		all[i] = numbered(s)
	}
	return build(all, opts)
}

// raise sets the counter of a node to the number of the lease. The error is errOvertaken if the
// node has moved on.
type raise func(ctx context.Context, lease contract.Lease, to uint64) error

func numbered(s backends.FencedStore) *node {
	return nodeOf(instance.New(s, s.SetNXFenced), func(ctx context.Context, lease contract.Lease, to uint64) error {
		landed, err := s.RaiseFence(ctx, lease.Key, lease.Token, to)
		if err == nil && !landed {
			return errOvertaken
		}
		return err
	})
}
