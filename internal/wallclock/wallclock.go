// Package wallclock gives one locker.Client a wall clock of its own, so that tests can set it: a machine has one for all its
// processes, and a bubble of testing/synctest has one that nobody can set. The monotonic clock is nobody's to set.
package wallclock

import (
	"sync/atomic"
	"time"
)

// A Clock is ahead of the wall clock of the machine by as much as it has been set. A nil Clock is that of the machine.
type Clock struct{ ahead atomic.Int64 }

// Jump sets the clock, ahead or back.
func (c *Clock) Jump(by time.Duration) { c.ahead.Add(int64(by)) }

// Now is the time by this clock. Only its wall reading means anything.
func (c *Clock) Now() time.Time { return c.At(time.Now()) }

// At is the time by this clock at now, a look at the clocks of the machine: the two readings in it
// are of one moment.
func (c *Clock) At(now time.Time) time.Time { return now.Add(c.isAhead()) }

func (c *Clock) isAhead() time.Duration {
	if c == nil {
		return 0
	}
	return time.Duration(c.ahead.Load())
}

// Of is the clock of a Locker or a store that has one of its own, by a method WallClock; nil for all others.
func Of(l any) *Clock {
	if has, ok := l.(interface{ WallClock() *Clock }); ok {
		return has.WallClock()
	}
	return nil
}

// A Reading is a look at a clock, which tells later by how much the clock has been set since. That of a machine is nil: what it
// has been set by is in the times themselves, which have a reading of either clock.
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

// Jumped is by how much the clock has been set since, ahead or back.
func (r *Reading) Jumped() time.Duration {
	if r == nil {
		return 0
	}
	return r.clock.isAhead() - r.ahead
}
