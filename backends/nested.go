package backends

import (
	"context"
	"time"
)

// A NestedStore keeps any number of holds per key, all of one owner, each with an expiry of its own. The promises of
// [Store] on errors, ctx and ttl hold here as well.
type NestedStore interface {
	// Enter adds the hold token to key for ttl if key is free or its owner is owner; an empty owner is nobody and never
	// has a hold already. If the hold is there, that is granted as well and gives it ttl anew, but no shorter than it
	// would have lived. Granted, the Result tells in Holds how many there are now; refused, in Left how long the last
	// of the holds still lives. What is under key and no lock of this kind is refused and left alone: a value of another
	// type with an error that matches ErrWrongType, one of this type with its Left, or as Foreign if it has no expiry.
	// So is, for who comes, a lock whose expiry someone has taken away. Enter is sent once.
	Enter(ctx context.Context, key, owner, token string, ttl time.Duration) (Result, error)

	// Renew makes the hold token live for ttl from now, and never shorter than it would have lived; false if it has
	// ended. It may be resent.
	Renew(ctx context.Context, key, token string, ttl time.Duration) (ok bool, err error)

	// Leave ends the hold token; false if it has ended. The last hold frees the key and wakes those who watch it. It
	// is sent once.
	Leave(ctx context.Context, key, token string) (ok bool, err error)

	Watcher
}
