package instance

import (
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// roundTrips are how long the last attempts took that were answered, by a grant or a refusal. The least of
// them is about what the way to the store takes: the others may have waited for a connection, for a row or
// for the processor. It is told to the store, which reserves a lock for longer if its waiter is far away.
type roundTrips struct {
	last [8]atomic.Int64
	next atomic.Uint32
}

// tripsOf are those that place tells; nil: it tells none.
func tripsOf(place Place) *roundTrips {
	if tells, ok := place.(interface{ roundTrips() *roundTrips }); ok {
		return tells.roundTrips()
	}
	return nil
}

// measure notes an attempt that began then and has just been answered.
func (r *roundTrips) measure(began time.Time) {
	if r != nil {
		r.last[r.next.Add(1)%uint32(len(r.last))].Store(int64(time.Since(began)))
	}
}

// least is 0 if no attempt was answered yet.
func (r *roundTrips) least() (least time.Duration) {
	for i := range r.last {
		if d := time.Duration(r.last[i].Load()); d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// told is the turn of a waiter, with its round trip. A call without a waiter has none to tell.
func (r *roundTrips) told(t backends.Turn) backends.Turn {
	if t.Waiter != "" {
		t.RoundTrip = r.least()
	}
	return t
}
