// Package wallclock gives a locker.Client its own wall clock, which a test can move. A test cannot
// move the clock of the machine, which is for all processes, or the clock of a bubble of
// testing/synctest. Nobody can move a monotonic clock.
package wallclock

import (
	"sync/atomic"
	"time"
)

// A Clock is the wall clock of the machine plus all jumps. A nil Clock is the clock of the machine.
type Clock struct{ ahead atomic.Int64 }

// Jump moves the clock, ahead or back.
func (c *Clock) Jump(by time.Duration) { c.ahead.Add(int64(by)) }

// Now returns the time by this clock. Only its wall reading is valid.
func (c *Clock) Now() time.Time { return c.At(time.Now()) }

// At returns the time by this clock at now, a time of the machine whose two readings are of one
// moment.
func (c *Clock) At(now time.Time) time.Time { return now.Add(c.isAhead()) }

func (c *Clock) isAhead() time.Duration {
	if c == nil {
		return 0
	}
	return time.Duration(c.ahead.Load())
}

// Of returns the clock of a Locker or a store with a method WallClock, or nil.
func Of(l any) *Clock {
	if has, ok := l.(interface{ WallClock() *Clock }); ok {
		return has.WallClock()
	}
	return nil
}

// A Reading is a look at a clock. Later it says how far the clock has jumped since. It is nil for
// the clock of the machine, whose jumps show in the times themselves: they have a reading of both
// clocks.
type Reading struct {
	clock *Clock
	ahead time.Duration
}

// Read looks at the clock.
func (c *Clock) Read() *Reading {
	if c == nil {
		return nil
	}
	return &Reading{c, c.isAhead()}
}

// Jumped returns how far the clock has jumped since, ahead or back.
func (r *Reading) Jumped() time.Duration {
	if r == nil {
		return 0
	}
	return r.clock.isAhead() - r.ahead
}
