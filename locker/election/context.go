package election

import (
	"context"
	"fmt"
	"time"
)

// termContext is the ctx of lead. It ends with the context of the lock, or before that with the ctx
// given to Run. Err and Done look at both, and so at the clocks: after a pause, the process must not
// read an old answer before another goroutine had its turn.
type termContext struct {
	context.Context // descends from lock
	cancel          context.CancelCauseFunc
	lock, run       context.Context
}

func newTermContext(lock, run context.Context) *termContext {
	ctx, cancel := context.WithCancelCause(lock)
	return &termContext{Context: ctx, cancel: cancel, lock: lock, run: run}
}

// look ends the ctx if it is time. The first cause stays.
func (c *termContext) look() {
	for _, above := range [...]context.Context{c.lock, c.run} {
		if above.Err() != nil {
			c.cancel(context.Cause(above))
		}
	}
}

func (c *termContext) Deadline() (time.Time, bool) { return c.run.Deadline() }

func (c *termContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *termContext) Err() error {
	c.look()
	return c.Context.Err()
}

// String keeps fmt from printing what is inside.
func (c *termContext) String() string { return fmt.Sprint(c.Context) }
