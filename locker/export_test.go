package locker

import "time"

// JumpWallClock makes the wall clock show d more than it does, until the returned func is called.
func JumpWallClock(d time.Duration) (back func()) {
	wallJump.Add(int64(d))
	return func() { wallJump.Add(int64(-d)) }
}

// Parts of a Client that must be empty when nothing is locked or waited for.
func (c *Client) Lines() int { c.lines.mu.Lock(); defer c.lines.mu.Unlock(); return len(c.lines.byKey) }

func (c *Client) Scheduled() int {
	c.renewals.mu.Lock()
	defer c.renewals.mu.Unlock()
	return len(c.renewals.heap)
}

func (c *Client) TimerIsSet() bool {
	c.renewals.mu.Lock()
	defer c.renewals.mu.Unlock()
	return !c.renewals.armed.IsZero()
}

func (c *Client) IdleWorkers() int {
	c.workers.mu.Lock()
	defer c.workers.mu.Unlock()
	return len(c.workers.idle)
}
