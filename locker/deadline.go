package locker

import (
	"context"
	"sync"
	"time"
)

// deadlineContext ends at its deadline, which the scheduler of a Client keeps: a timer for every Unlock would cost
// more than all else in it. The values are those of its Context, which can't end.
type deadlineContext struct {
	context.Context
	deadline time.Time

	mu   sync.Mutex
	done chan struct{}
	err  error
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deadlineContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

func (c *deadlineContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *deadlineContext) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = context.DeadlineExceeded
		if c.done != nil {
			close(c.done)
		}
	}
}
