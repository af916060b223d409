package locker

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
)

// endedAt compares the monotonic readings, then the wall clocks. A test can set its wall clock.
func (l *Lease) endedAt(now time.Time) bool {
	return !now.Before(l.Expires) || !now.Round(0).Add(l.wall.Jumped()).Before(l.Expires.Round(0))
}

// setSince is how far the wall clock has been set ahead since the request for the lease, or for its
// last extension.
func (l *Lease) setSince(now time.Time) time.Duration {
	return l.Expires.Sub(now) - l.Expires.Round(0).Sub(now.Round(0).Add(l.wall.Jumped()))
}

// byClock adds to each lease what the wall clock of a test showed before the request for it. Without
// it, no test could show that a lease ends when the wall clock says so. A program has none.
type byClock struct {
	Locker
	clock *wallclock.Clock
}

// withItsClock is l itself, except in a test that has given l a wall clock.
func withItsClock(l Locker) Locker {
	if clock := wallclock.Of(l); clock != nil {
		return byClock{l, clock}
	}
	return l
}

func (b byClock) Acquire(ctx context.Context, req Request) (Lease, error) {
	at := b.clock.Read()
	lease, err := b.Locker.Acquire(ctx, req)
	lease.wall = at
	return lease, err
}

func (b byClock) Transfer(ctx context.Context, from string, req Request) (Lease, error) {
	at := b.clock.Read()
	lease, err := b.Locker.Transfer(ctx, from, req)
	lease.wall = at
	return lease, err
}

func (b byClock) Extend(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error) {
	at := b.clock.Read()
	extended, err := b.Locker.Extend(ctx, lease, ttl)
	if extended.Expires.After(lease.Expires) {
		extended.wall = at
	}
	return extended, err
}
