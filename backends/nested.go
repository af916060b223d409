package backends

import (
	"context"
	"time"
)

// A NestedStore keeps any number of holds per key. All holds of a key have one owner; each has an
// expiry of its own. The promises of [Store] on errors, ctx and ttl hold here as well.
type NestedStore interface {
	// Enter adds the hold token to key for ttl if key is free or its owner is owner. An empty owner
	// never equals the owner of the key. If the hold is there already, Enter grants it as well,
	// with ttl from now, and never shortens its life.
	//
	// If granted, the Result has the number of holds in Holds. If held, it has in Left how long the
	// last hold still lives.
	//
	// Enter leaves any other value under key alone. A value of another type is an error that
	// matches ErrWrongType. A value of this type that is no lock is held: with its Left, or as
	// Foreign if it has no expiry. A lock whose expiry another client has removed is Foreign too.
	//
	// Enter is sent once.
	Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (Result, error)

	// Renew makes the hold token live for ttl from now, and never shortens its life. It returns
	// false if the hold has ended. It may be resent.
	Renew(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error)

	// Leave ends the hold token. It returns false if the hold has ended already. The last hold
	// frees the key and wakes the watchers. It is sent once.
	Leave(ctx context.Context, key, token string) (ok bool, err error)

	Watcher
}
