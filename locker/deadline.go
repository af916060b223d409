package locker

import (
	"context"
	"time"
)

// deadlineContext ends at its deadline, which the scheduler of a Client keeps: a timer for every Unlock would cost
// more than all else in it. The values are those of its Context, which can't end.
type deadlineContext struct {
	context.Context
	deadline time.Time
	ending   ending
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *deadlineContext) Done() <-chan struct{}       { return c.ending.Done() }
func (c *deadlineContext) Err() error                  { return c.ending.Err() }

func (c *deadlineContext) expire() {
	c.ending.mu.Lock()
	defer c.ending.mu.Unlock()
	c.ending.end(context.DeadlineExceeded)
}
