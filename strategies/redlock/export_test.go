package redlock

import (
	"github.com/lockstep-go/lockstep/internal/cleanup"
	"github.com/lockstep-go/lockstep/locker"
)

// Flying returns how many tokens have attempts that are remembered.
func Flying(l locker.Locker) int {
	fs := &l.(*quorum).flying
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byToken)
}

// Servers returns the state of each node's server queue.
func Servers(l locker.Locker) []cleanup.Stats {
	var all []cleanup.Stats
	for _, n := range l.(*quorum).nodes {
		all = append(all, n.server.Stats())
	}
	return all
}

// TakeSlots takes all slots of node i.
func TakeSlots(l locker.Locker, i int) {
	for l.(*quorum).nodes[i].server.TryReserve() {
	}
}
