// Package backends defines what a store must do to carry locks. A backend does one atomic operation
// on one store and reports the result. It does not wait, retry, renew or decide; strategies do.
//
// This page is for the author of a backend. Package backendtest is the same contract as a test
// suite.
package backends

import (
	"context"
	"errors"
	"time"

	"github.com/lockstep-go/lockstep/internal/relied"
)

// A Store keeps at most one value per key, each with an expiry. Every call is one atomic operation.
// Safe for concurrent use.
//
// A nil error means that the store answered. Any other error means that the outcome is unknown: the
// call may have taken effect, or take effect later. There are two exceptions. An error whose method
// Permanent() bool returns true cannot be cured by repeating: see [AsPermanent] and [Invalid]. One
// whose method Unsent() bool returns true means that nothing was done, and the call may be
// repeated: see [AsUnsent]. An error of unknown outcome may have a method Stale() bool. If it
// returns true, the connection had been idle and had ended before the call, so that a Client may
// make another attempt at once. A store does not repeat a call by itself. Only ExpireIf may be
// resent: it acts only if it finds the value, also if it arrives late. A call with a ctx that is
// already done sends nothing and returns the ctx's error.
//
// A ttl is at least a millisecond and at most the store's limit ([DefaultMaxTTL] unless its
// WithMaxTTL says otherwise). Any other ttl is a permanent error before anything is sent. That
// error names the limit as a time.Duration prints it. A longer ttl is taken if [Relied] is within the
// limit. An error that matches [ErrWrongType] is
// permanent as well. A store that keeps time more coarsely rounds up: a value never lives shorter
// than asked.
type Store interface {
	// SetNX stores value under key for ttl if key is absent, expired, or holds value already. In
	// the last case key lives for ttl from now, or longer if it had a longer life: a call that
	// arrives twice must not undo an ExpireIf in between. A value that had no expiry gets ttl.
	//
	// If the key holds something else, SetNX changes nothing and returns a Result without OK, and
	// no error. A key of another type is an error that matches ErrWrongType.
	//
	// The call is sent once. A retry by the client library would hide that the first call may still
	// be on its way.
	SetNX(ctx context.Context, key, value string, ttl time.Duration) (Result, error)

	// ExpireIf makes key live for ttl from now if it holds value. It never shortens the life of
	// key. If the server does not tell how long key still lives, ExpireIf makes it live for the
	// longest ttl that was asked for value, from now. A value may live too long, never too short.
	ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (ok bool, err error)

	// DeleteIf removes key if it holds value, and wakes the watchers of key. The call is sent once.
	// A retry by the client library would find the key absent and report a loss that did not
	// happen.
	DeleteIf(ctx context.Context, key, value string) (ok bool, err error)

	Watcher
}

// OneServer reports whether a Store keeps all keys on one server: if it fails for one key, it fails
// for all. Strategies call this method if the Store has it. While such a server fails, one attempt
// at a time asks it, whatever the number of keys. Without the method, or if it returns false, each
// key is asked for by itself. An example is a cluster with a part that is down.
type OneServer interface{ OneServer() bool }

// A Watcher reports when a key may have become free.
type Watcher interface {
	// Watch calls wake when key may have become free, until ctx is done. It is active when it
	// returns nil. A wake-up may come late, twice, without a reason or never. wake does not block.
	// An error that matches [errors.ErrUnsupported] means: poll. Watch returns a permanent error,
	// such as a missing permission. It does not return an error if the connection is down: the
	// store connects again by itself, and every waiter polls anyway.
	Watch(ctx context.Context, key string, wake func()) error
}

// Result is the answer to SetNX and similar calls.
type Result struct {
	OK       bool          // stored
	Left     time.Duration // held: how long the present value still lives; 0: unknown
	Foreign  bool          // held: the present value has no expiry, so no strategy with leases wrote it
	Fence    uint64        // granted: the number of this grant, if the store numbers them; 0: it does not
	Holds    int           // how many holds the key has now, in a SharedStore
	Room     int           // granted: how many more holds the key admits beside this one, in a SharedStore; -1: any number
	Slot     int           // granted: the number of the hold, with [Admission.Slots]
	Holder   string        // held: the label of the holder, or of one of them, or of an eviction, see [InTheWay]; empty: it has none, or the store does not tell
	Position int           // held: the waiter's position in the queue, from 1; 0: none
}

// DefaultMaxTTL is the longest life of a value, unless the store's WithMaxTTL says otherwise. It is
// three times the default TTL of a Client: a lock lives long by renewal, not by a long TTL. The
// quarantine of a restarted server lasts a little longer than this limit. So a limit that is higher
// than needed costs availability.
const DefaultMaxTTL = 30 * time.Second

// Relied returns the part of ttl for which the caller believes that it has the lock: all of it, or
// less if the rest only keeps the key locked for a minimum hold (locker.WithMinHold). A store
// compares it with its longest TTL, and lets the value live for ttl. If the server forgets the
// value, the rest protects nobody, so quarantine need not outlast it.
func Relied(ctx context.Context, ttl time.Duration) time.Duration { return relied.Of(ctx, ttl) }

// ErrWrongType is matched by the error of a call that found a value of a type that the store does
// not write.
var ErrWrongType = errors.New("key holds a value of another type")

// ErrOtherGroup is matched by the error of a call that would move a hold from one group to another: see
// [SharedTransferStore].
var ErrOtherGroup = errors.New("another strategy, or the other side of a read-write lock, took this lock: resume it with that one")
