// Package calls carries, in the ctx of a call of a Locker, what its caller says about it: a
// locker.Client to middleware, see contract.Call, and a quorum to its nodes.
package calls

import (
	"context"
	"time"
)

// Key is the key of the ctx.
type Key struct{}

// DrainKey is the key of what counts the calls for which locker.Client.Drain waits. There may be middleware
// between a Client and a Locker, and several Clients above one Locker, so the ctx is the only way from
// one to the other.
type DrainKey struct{}

// Notes are about one Extend or Release, or about any call of a quorum. They are bits, so that the
// value of a ctx needs no memory of its own.
type Notes uint8

// The notes.
const (
	Abandoned Notes = 1 << iota // the Lock has become garbage without Unlock
	Kept                        // the key is kept, or was, for the rest of a minimum hold
	node                        // see ForNode
)

// With says n of the call under ctx.
func With(ctx context.Context, n Notes) context.Context { return context.WithValue(ctx, Key{}, n) }

// ForNode is the ctx for a call of a quorum to one of its nodes: it has the values of ctx, but not its
// end. What a Client says of an Acquire is hidden from the node: what it grants is no hold. The node
// leaves to the quorum what only the quorum can decide:
//
//   - The cleanup after an attempt. A node might clean up late, after an extension that counted it.
//   - Whether to ask a server that does not answer: the quorum has a gate of its own for each node.
//   - The cause of a loss. A release also asks nodes that never granted the lease.
func ForNode(ctx context.Context) context.Context { return &nodeContext{ctx, notesOf(ctx) | node} }

// IsNode tells whether a quorum makes the call, to its node. Middleware may be between the two, so the
// ctx is the only way from one to the other.
func IsNode(ctx context.Context) bool { return notesOf(ctx)&node != 0 }

func notesOf(ctx context.Context) Notes {
	n, _ := ctx.Value(Key{}).(Notes)
	return n
}

type nodeContext struct {
	context.Context
	notes Notes
}

func (*nodeContext) Deadline() (end time.Time, ends bool) { return time.Time{}, false }
func (*nodeContext) Done() <-chan struct{}                { return nil }
func (*nodeContext) Err() error                           { return nil }

func (c *nodeContext) Value(key any) any {
	if key == (Key{}) {
		return c.notes
	}
	return c.Context.Value(key)
}
