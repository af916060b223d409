package backends

import (
	"context"
	"time"
)

// A FencedStore numbers the grants of each key, so that a resource can refuse a holder who is too late. The numbers of a
// key never repeat and never fall while the store keeps its memory; what they survive besides is said at [Numbering].
type FencedStore interface {
	Store

	// SetNXFenced is SetNX, and in the same atomic step gives a new ownership the next number, which the Result has in
	// Fence. If key holds value already, that is no new ownership: it lives on as with SetNX, and has the number that it has. Like
	// SetNX it is sent once.
	SetNXFenced(ctx context.Context, key, value string, ttl time.Duration, n Numbering) (Result, error)

	// RaiseFence sets the number of key to to if key holds value and the number is not over to already; landed tells
	// whether it was done. It may be resent: done again, it says the same as long as key holds value. It is for Count:
	// the counter then has no expiry. A number of 2^53 or more is refused before anything is sent.
	RaiseFence(ctx context.Context, key, value string, to uint64) (landed bool, err error)
}

// Numbering says how the next number is found. Numbers stay below 2^53, so that every language can hold them; a grant
// that would need a greater one is refused by an error.
type Numbering int

const (
	// Count is the last number and one more. It is for the nodes of a quorum, whose clocks differ. The counter has no
	// expiry: there is one more key for every key ever locked.
	Count Numbering = iota + 1

	// Clock is the store's time in µs since 1970, or the last number and one more if that is greater. It is for one
	// instance: the numbers go on rising when the counter is lost, unless the clock has gone back too. So the counter
	// may expire, [FenceRetention] after its last use, and later by as much as it is ahead of the clock.
	Clock
)

// FenceRetention is how long the counter of a key outlives its last use under [Clock].
const FenceRetention = 24 * time.Hour
