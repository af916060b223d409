package backends

import (
	"context"
	"time"
)

// A NumberedStore numbers the grants of each key by an order of the store: a counter, a clock, a
// revision, a sequence. So a resource can refuse a holder that is too late. A store whose waiters
// stand in a queue is a [QueuedStore] as well.
type NumberedStore interface {
	Store

	// SetNXNumbered is SetNXQueued with the same t, and in the same atomic step gives a new
	// ownership a number, which the Result has in Fence. The number is greater than every number
	// that the key had before. It is at least 1 and less than 2^53, so that every language can hold
	// it; a grant that would need a greater one fails with a permanent error. A reservation has no
	// number: the waiter gets one when it takes the key. If key holds value already, that is no new
	// ownership: it lives on as with SetNX, and keeps its number. Like SetNX it is sent once.
	//
	// A store without a queue gives no position, whatever t says.
	SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t Turn) (Result, error)
}

// A FencedStore counts the grants of each key by one, for the nodes of a quorum, whose clocks
// differ. The counter has no expiry: there is one more key for every key ever locked.
type FencedStore interface {
	Store

	// SetNXFenced is SetNX, and in the same atomic step gives a new ownership the last number and
	// one more, which the Result has in Fence. If key holds value already, that is no new
	// ownership: it lives on as with SetNX, and keeps its number. Numbers stay less than 2^53; a
	// grant that would need a greater one fails with a permanent error. Like SetNX it is sent once.
	SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (Result, error)

	// RaiseFence sets the number of key to to if key holds value and the number is not over to
	// already; landed tells whether it was done. It may be resent: done again, it says the same as
	// long as key holds value. A number of 2^53 or more is refused before anything is sent.
	RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error)
}

// FenceRetention is how long the number of a key outlives its last use in a [NumberedStore] that
// numbers by its clock. If the number is ahead of the clock, it lives longer by as much.
const FenceRetention = 24 * time.Hour
