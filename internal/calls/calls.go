// Package calls carries, in the ctx of a call of a Locker, what a locker.Client says about it to
// middleware: see locker.Call.
package calls

import "context"

// Key is the key of the ctx. A Locker that asks others, as a quorum does, hides it from them in an
// Acquire: what one of them grants is no hold.
type Key struct{}

// Notes are about one Extend or Release.
type Notes struct {
	Abandoned bool // the Lock has become garbage without Unlock
	Kept      bool // the key is kept, or was, for the rest of a minimum hold
}

// With says n of the call under ctx.
func With(ctx context.Context, n Notes) context.Context { return context.WithValue(ctx, Key{}, n) }
