// Package relied carries, in a ctx, how much of a TTL the caller of a store relies on.
package relied

import (
	"context"
	"time"
)

// Longest is the longest TTL with a part that nobody relies on: the longest minimum hold.
const Longest = 24 * time.Hour

type key struct{}

// With is for calls whose caller believes that it has the lock for d at most, whatever their TTL is.
func With(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, key{}, d)
}

// Of returns the part of ttl that the caller relies on: all of it, unless With says otherwise.
func Of(ctx context.Context, ttl time.Duration) time.Duration {
	if d, ok := ctx.Value(key{}).(time.Duration); ok && ttl <= Longest {
		return min(d, ttl)
	}
	return ttl
}
