package locker

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
)

// deadlineContext is what the first Release of a hold runs under. [context.WithDeadline] with a
// [context.AfterFunc] would make seven more allocations for every Unlock.
type deadlineContext struct {
	valuesContext
	deadline time.Time

	mu   sync.Mutex
	done chan struct{} // made when somebody asks for it
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

// end ends the ctx with err: at its deadline, or when Release has returned. The first call counts.
func (c *deadlineContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	if c.done != nil {
		close(c.done)
	}
}

// valuesContext has the values of the ctx given to Lock, but not its end. What is released below it
// counts for Drain.
type valuesContext struct{ hold *hold }

func (c *valuesContext) Deadline() (end time.Time, ends bool) { return time.Time{}, false }
func (c *valuesContext) Done() <-chan struct{}                { return nil }
func (c *valuesContext) Err() error                           { return nil }

func (c *valuesContext) Value(key any) any {
	if key == (cleanup.LedgerKey{}) {
		return &c.hold.client.ledger
	}
	return c.hold.given.Value(key)
}

// countedContext is a ctx of an attempt: what is cleaned up after it counts for Drain.
type countedContext struct {
	context.Context
	ledger *cleanup.Ledger
}

func (c *countedContext) Value(key any) any {
	if key == (cleanup.LedgerKey{}) {
		return c.ledger
	}
	return c.Context.Value(key)
}
