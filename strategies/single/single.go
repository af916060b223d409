// Package single locks on one instance of a store: a value that only its owner knows, under the key itself, with an
// expiry. It is the recipe of https://redis.io/docs/latest/commands/set/ ("Patterns"), and it excludes, and is
// excluded by, any other software that locks with SET NX PX on the same key.
//
// With Redis the commands are
//
//	acquire   SET key token NX PX ttl    granted as well if key holds token already, never for shorter
//	extend    PEXPIRE key ttl            if key holds token and would end sooner
//	release   DEL key, PUBLISH a wake    if key holds token
//
// Processes that wait stand in a queue beside the key, where the store has queues ([backends.QueuedStore]): a refused attempt takes a place
// with ZADD, and the release sets the key to a reservation of 200 ms for the first of them, and wakes that one alone. A free lock goes
// to whoever asks, so the order is not promised; package fair promises it.
//
// # What it does not promise
//
// The lock is as good as the memory of its one instance. Two holders at once are possible when the instance forgets a
// key before its time: a restart without the data (quarantine of restarted servers helps, see package goredis), a
// failover to a replica that had not got the key yet, eviction, FLUSHALL, a server clock that jumps forward. A holder
// that is paused past its lease learns of it at its next look at its context, not before; what it has sent by then
// still arrives. Grants are not numbered, so the resource can't refuse a holder who is too late.
package single

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its locks in store. If the store is a [backends.QueuedStore], those who wait stand in its
// queues, and a release wakes one of them.
func New(store backends.Store) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	if queues, ok := store.(backends.QueuedStore); ok {
		return instance.Queued(queues, false)
	}
	return instance.New(store, store.SetNX)
}
