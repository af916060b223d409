package redlock

import "github.com/lockstep-go/lockstep/locker"

// Flying is how many tokens have attempts that are remembered.
func Flying(l locker.Locker) int {
	fs := &l.(*quorum).flying
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byToken)
}
