package backends

import (
	"context"
	"time"
)

// A QueuedStore lets those who wait for a key stand in a queue beside it, so that a release wakes one of them and not all.
// A key that is given up while someone waits is not free: it is reserved, for [Reservation], for the one who has waited
// longest and can be told. Only SetNXQueued for that waiter takes it then; to all other calls the key holds a value of someone
// else. A reservation that is not taken ends, and the key is free to whoever asks.
//
// So a waiter who has died, is frozen, or is not reached by the message that it is his turn costs the others no more than one
// reservation. He has lost his place by then.
type QueuedStore interface {
	Store

	// SetNXQueued is SetNX for someone who may wait. Refused, t.Waiter takes a place behind those who have one, or keeps his, and
	// the Result has it in Position. A waiter who is granted the key has no place any more. Whoever asks with a Waiter
	// watches for him already; a store may give no place to one who is not watched for.
	SetNXQueued(ctx context.Context, key, value string, ttl time.Duration, t Turn) (Result, error)

	// WatchQueued is Watch for one waiter: wake is called when key is reserved for him, when it may have become free beside
	// him, and when a message may have been missed. Once ctx is done he gives up his place, and what was reserved for him
	// goes to the next.
	WatchQueued(ctx context.Context, key, waiter string, wake func()) error
}

// Turn says how SetNXQueued treats the queue.
type Turn struct {
	Waiter string // names the place: unique, printable, without @; empty: whoever asks has none and gets none
	// InOrder grants a free key to the first of the queue only. To anybody else it is reserved for the first, as if it had just
	// been released. Without it a free key goes to whoever asks.
	InOrder bool
	// Free is a hint: the key has just been released, and nobody else was seen to want it. A store may ask in the way that is
	// quickest for a free key.
	Free bool
}

// Reservation is how long a key waits for the one whose turn it is.
const Reservation = 200 * time.Millisecond
