package locker

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
)

// deadlineContext is what the first Release of a hold runs under. It ends at its deadline, which
// the scheduler of a Client keeps: a timer for every Unlock would cost more than all else in it.
type deadlineContext struct {
	valuesContext
	deadline time.Time
	ending   ending
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c *deadlineContext) Done() <-chan struct{}       { return c.ending.Done() }
func (c *deadlineContext) Err() error                  { return c.ending.Err() }

// expire ends it, unless that was done before.
func (c *deadlineContext) expire() (first bool) {
	c.ending.mu.Lock()
	defer c.ending.mu.Unlock()
	return c.ending.end(context.DeadlineExceeded)
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
