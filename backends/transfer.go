package backends

import (
	"context"
	"time"
)

// A TransferStore moves the value of a key from one token to another, so that another process can go
// on with a lock without a moment in which the key is free. The promises of [Store] on errors, ctx
// and ttl hold here as well.
type TransferStore interface {
	Store

	// Transfer stores value in the place of from, if key holds from. The key lives for ttl from now,
	// or longer if it had a longer life. With numbered, that is a new ownership: it gets a number as
	// SetNXNumbered of a [NumberedStore] gives it.
	//
	// If key holds value already, Transfer grants it again, as SetNX does: a call may arrive twice.
	// A key that holds neither stays as it is, also if it is free. The Result is then without OK.
	//
	// Transfer is sent once.
	Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (Result, error)
}

// A SharedTransferStore is a [SharedStore] that moves a hold from one token to another.
type SharedTransferStore interface {
	SharedStore

	// TransferHold is Transfer for a hold of key: the hold token takes the place of the hold from,
	// with its slot. The Result has Holds and Slot, and no Room. With numbered it has the number of
	// the epoch in Fence. A hold that is alone begins a new epoch.
	//
	// The hold stays in its group. If that is another one, the hold stays as it is, and the error,
	// which is permanent, matches [ErrOtherGroup].
	TransferHold(ctx context.Context, key, from, token string, ttl time.Duration, group string, numbered bool) (Result, error)
}
