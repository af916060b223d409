package locker

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/internal/calls"
	"github.com/lockstep-go/lockstep/internal/cleanup"
)

// Drain waits until nothing of these is under way, or until ctx ends. It is for a program that is
// about to end: what it has not released by then stays locked until the lease ends.
//   - A release, also one whose Unlock has returned: until the store answers, or the lease has ended.
//   - A cleanup after an unknown outcome or a loss, of this Client or of its strategy (see
//     [contract.DelayDrain]): until the store has answered it once, or has forgotten the value by its TTL. The
//     TTL of what stands in the socket of a server that hangs begins when the server goes on: give
//     ctx a deadline.
//   - An attempt, also one whose Lock has returned: until the client library returns, and what it
//     leaves is cleaned up.
//
// A permanent error is an answer: nothing is left to wait for when the client library is closed.
//
// Drain does not wait for a lock that is held, and does not release it; nor for a Lock that sleeps
// between two attempts, whose ctx the program should have ended before; nor for the end of a
// minimum hold ([WithMinHold]); nor, perhaps, for a call that begins after Drain.
func (c *Client) Drain(ctx context.Context) error {
	switch {
	case c == nil:
		return fmt.Errorf("lockstep: drain: %w", errNoClient)
	case ctx == nil:
		return fmt.Errorf("lockstep: drain: %w", errNilContext)
	}
	if err := c.ledger.Drain(ctx); err != nil {
		return fmt.Errorf("lockstep: drain: attempts, releases or cleanups that are not answered: %d; their leases end by themselves: %w", c.ledger.Open(), err)
	}
	return nil
}

// countedContext is a ctx with the ledger, for calls of the Locker: see [contract.DelayDrain].
type countedContext struct {
	context.Context
	ledger *cleanup.Ledger
}

func (c *countedContext) Value(key any) any {
	if key == (calls.DrainKey{}) {
		return c.ledger
	}
	return c.Context.Value(key)
}
