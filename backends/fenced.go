package backends

import (
	"context"
	"time"
)

// A NumberedStore numbers the grants of each key in an order of the store: a counter, a clock, a
// revision or a sequence. With the number a resource can reject a holder that is too late. A store
// whose waiters stand in a queue is also a [QueuedStore].
type NumberedStore interface {
	Store

	// SetNXNumbered is SetNXQueued with the same t. In the same atomic step it gives a new
	// ownership a number, which the Result has in Fence. The number is greater than every number
	// that the key had before. It is at least 1 and less than 2^53, so that every language can hold
	// it. A grant that would need a greater number fails with a permanent error. A reservation has
	// no number: the waiter gets one when it takes the key. If key holds value already, that is no
	// new ownership: it lives on as with SetNX, and keeps its number. Like SetNX it is sent once.
	//
	// A value that a call without a number has stored has none: never ask for the same value by
	// both. A store without a queue gives no position, whatever t says.
	SetNXNumbered(ctx context.Context, key, value string, ttl time.Duration, t Turn) (Result, error)
}

// A FencedStore numbers the grants of each key by a counter, for the nodes of a quorum, whose
// clocks differ. The counter has no expiry: there is one more key for every key ever locked.
type FencedStore interface {
	Store

	// SetNXFenced is SetNX. In the same atomic step it gives a new ownership the last number plus
	// one, which the Result has in Fence. If key holds value already, that is no new ownership: it
	// lives on as with SetNX, and keeps its number. Numbers stay less than 2^53; a grant that would
	// need a greater one fails with a permanent error. Like SetNX it is sent once.
	SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (Result, error)

	// RaiseFence sets the number of key to to, if key holds value and the number is not greater
	// than to already. landed reports whether it did. It may be resent: the second call returns the
	// same as long as key holds value. A number of 2^53 or more is an error before anything is
	// sent.
	RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error)
}

// FenceRetention is how long the number of a key outlives its last use in a [NumberedStore] that
// numbers by its clock. A number that is ahead of the clock lives longer by that difference.
const FenceRetention = 24 * time.Hour
