package lockertest

import "github.com/lockstep-go/lockstep/backends/backendtest"

// A Disturber reaches the store beneath the Locker under test past the Locker, as an operator,
// other software or a bad network does. Safe for concurrent use. If it fails, it fails the test: an
// implementation keeps the t given to Harness.New.
type Disturber interface {
	// Holds reports whether any value lies under key now: on any node, if there are several. A
	// value that the strategy keeps for longer than a lease, such as a counter, does not count.
	Holds(key string) bool
	// Delete removes the value under key, if any. It may wake the watchers of key or not.
	Delete(key string)
	// Expire ends the life of the value under key, like a store whose clock jumps ahead. It wakes
	// no watcher.
	Expire(key string)
	// SetForeign puts a value without expiry under key, whatever was there, as other software may
	// do.
	SetForeign(key string)
	// SetOther puts a value of a type that the strategy does not write under key, whatever was
	// there.
	SetOther(key string)
	// Evict ends the hold of key by force, as an operator with the label by does ([backends.Evictor]).
	// The key stays closed until the hold would have ended.
	Evict(key, by string)

	// Fault applies f to every call of op that begins from now on; nil means none. A call that is
	// already in a fault stays in it. Fault of All replaces what is set for each operation.
	Fault(op Op, f backendtest.Fault)
	// FaultOnce applies f to the next calls of op, one to each, in this order. They come before the
	// fault that Fault has set.
	FaultOnce(op Op, f ...backendtest.Fault)
}

// An Op names an operation of the Locker. If it makes several calls to the store, a fault meets
// each of them. A harness maps it to methods of the store, as [backendtest.Op].
type Op string

// The operations. Release stands also for the cleanup after an attempt whose outcome is unknown.
// All stands for every operation; only Fault gets it.
const (
	Acquire Op = "acquire"
	Extend  Op = "extend"
	Release Op = "release"
	Watch   Op = "watch"
	All     Op = "all"
)
