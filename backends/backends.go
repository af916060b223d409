// Package backends says what a store must do to carry locks. A backend does one atomic operation on one store and
// reports what happened; it does not wait, retry, renew or decide. Strategies do.
//
// This page is what the author of a backend reads; package backendtest is the same contract as a suite that runs.
package backends

import (
	"context"
	"errors"
	"time"
)

// A Store keeps at most one value per key, each with an expiry. Every call is one atomic fact. Safe for concurrent use.
//
// A nil error means that the store answered. Any other error means that the outcome is unknown: the
// call may have taken effect, or take effect later. There are two exceptions. An error whose method
// Permanent() bool returns true cannot be cured by repeating. One whose method Unsent() bool
// returns true means that nothing was done, and the call may be repeated. A store does not repeat a
// call by itself, except that ExpireIf may be resent: one that arrives late finds the value or does
// not. A call with a ctx that is already done sends nothing and returns the ctx's error.
//
// A ttl is at least a millisecond and at most the store's limit ([DefaultMaxTTL] unless its
// WithMaxTTL says otherwise). Any other ttl is an error before anything is sent. That error names
// the limit as a time.Duration prints it, and it is permanent: its method Permanent returns true.
// An error that matches [ErrWrongType] is permanent as well. A store that keeps time more coarsely
// rounds up: a value never lives shorter than asked.
type Store interface {
	// SetNX stores value under key for ttl if key is absent, expired, or holds value already; then key lives for ttl from
	// now, unless it had a longer life already: a call that arrives twice must not take back what ExpireIf did in between.
	// A value that had no expiry gets ttl. If the key holds something else, SetNX changes nothing and the Result says so
	// without an error. A key of another type is an error that matches ErrWrongType. The call is sent once: a client
	// library's own retry would hide that the first one may still be on its way.
	SetNX(ctx context.Context, key, value string, ttl time.Duration) (Result, error)

	// ExpireIf makes key live for ttl from now if it holds value, and never shorter than it would have lived.
	ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error)

	// DeleteIf removes key if it holds value, and wakes those who watch it. The call is sent once: a client library's
	// own retry would find the key absent and report a loss that did not happen.
	DeleteIf(ctx context.Context, key, value string) (ok bool, err error)

	Watcher
}

// OneServer tells whether a Store keeps all keys on one server: one that fails for a key fails for
// all. Strategies look for it. While such a server fails, one attempt at a time asks it, whatever
// the number of keys. A Store that has not got this method, or returns false, such as a cluster
// with a part that is down, is asked for each key by itself.
type OneServer interface{ OneServer() bool }

// A Watcher tells when a key may have become free. Package locker declares the same interface; neither imports the
// other.
type Watcher interface {
	// Watch calls wake when key may have become free, until ctx is done. It is active when it returns nil. A wake may
	// come late, twice, for nothing or never; wake does not block. An error that matches [errors.ErrUnsupported]
	// means: poll. A refusal, such as a missing permission, is returned; a connection that is down is not, since
	// the store connects again by itself and everyone polls anyway.
	Watch(ctx context.Context, key string, wake func()) error
}

// Result is the answer to SetNX and its like.
type Result struct {
	OK       bool          // stored
	Left     time.Duration // refused: how long the present value still lives; 0: unknown
	Foreign  bool          // refused: the present value has no expiry, so no strategy with leases wrote it
	Fence    uint64        // granted: the number of this grant, if the store numbers them; 0: it does not
	Holds    int           // granted: how many holds the owner has now, if the store nests them; 0: it does not
	Position int           // refused: which place in the queue the waiter has, from 1; 0: none
}

// DefaultMaxTTL is the longest life that a store gives a value unless its WithMaxTTL says otherwise. It is
// three times the default TTL of a Client: a lock lives long by renewal, not by a long TTL. The quarantine of
// a server that was restarted lasts a little longer than this limit, so a limit that is higher than needed
// costs availability.
const DefaultMaxTTL = 30 * time.Second

// ErrWrongType is matched by the error of a call that found a value of another type than the store writes.
var ErrWrongType = errors.New("key holds a value of another type")
