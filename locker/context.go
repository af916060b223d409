package locker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/internal/cleanup"
)

// holdContext is the Context of a Lock. It reads the clocks before it says that the hold lasts:
// after a pause, the scheduler may not have run yet. It is a part of the Lock, so the Lock is not
// garbage while its context is in use.
type holdContext struct{ hold *hold }

func (c *holdContext) Deadline() (time.Time, bool) { return c.hold.parent.Deadline() }
func (c *holdContext) Done() <-chan struct{}       { return c.hold.context().Done() }

// Value returns the hold for a Lock below it: see Client.waitsForItself.
func (c *holdContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold
	}
	return c.hold.context().Value(key)
}

func (c *holdContext) Err() error {
	ctx, over := c.hold.state(time.Now())
	switch {
	case ctx != nil:
		return ctx.Err()
	case over != nil && !c.hold.stopped:
		return context.Canceled
	}
	return c.hold.parent.Err()
}

type holdKey struct{}

// holdOf is the innermost hold from whose context ctx descends, or nil.
func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// String, GoString and Format keep fmt from printing the hold inside.
func (c *holdContext) String() string {
	return fmt.Sprintf("%v.WithLock(%q)", c.hold.given, shown(c.hold.lease.Key))
}

func (c *holdContext) GoString() string { return c.String() }

func (c *holdContext) Format(s fmt.State, verb rune) { format(s, verb, c) }

// deadlineContext is what the first Release of a hold runs under. With [context.WithDeadline] and
// [context.AfterFunc] a Lock and Unlock would take 1.2 to 1.4 times the CPU, and 13 allocations
// instead of 6: see docs/performance.md, "What each mechanism brings".
type deadlineContext struct {
	valuesContext
	deadline time.Time

	mu   sync.Mutex
	done chan struct{} // made by the first call of Done
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

// valuesContext has the values of the ctx given to Lock, but not its end, and the ledger: so Drain
// waits for a cleanup under it. [context.WithoutCancel] has no place for the ledger.
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

// countedContext is a ctx of an attempt, with the ledger: so Drain waits for a cleanup under it.
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
