package locker

import (
	"time"

	"github.com/lockstep-go/lockstep/internal/wallclock"
	"github.com/lockstep-go/lockstep/locker/contract"
)

// grant is a lease as a Client keeps it: with a look at the wall clock before the request for the
// lease, or for its last extension. The look is nil in a program, whose times have a reading of the
// wall clock of the machine. Without it, no test could show that a lease ends when the wall clock says so.
type grant struct {
	contract.Lease
	wall *wallclock.Reading
}

// ended compares the monotonic readings, then the wall clocks.
func (g *grant) ended(now time.Time) bool {
	return !now.Before(g.Expires) || !now.Round(0).Add(g.wall.Jumped()).Before(g.Expires.Round(0))
}

// setSince is how far the wall clock has been set ahead since.
func (g *grant) setSince(now time.Time) time.Duration {
	return g.Expires.Sub(now) - g.Expires.Round(0).Sub(now.Round(0).Add(g.wall.Jumped()))
}

// shared tells that others may hold the lock beside this lease, or may come to.
func shared(l contract.Lease) bool { return l.Room != 0 || l.Holds > 1 }
