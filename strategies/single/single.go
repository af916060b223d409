// Package single keeps a lock on one instance of a store. The lock is a value under the key itself,
// with an expiry. Only the holder knows the value. This is the recipe of
// https://redis.io/docs/latest/commands/set/ ("Patterns"). The lock excludes other software that
// locks with SET NX PX on the same key, and the other software excludes it.
//
// With Redis the commands are
//
//	acquire   SET key token NX PX ttl    also if key holds token already; never shortens the TTL
//	extend    PEXPIRE key ttl            if key holds token and would end sooner
//	release   DEL key, PUBLISH a wake    if key holds token
//
// If the store has queues ([backends.QueuedStore]), waiting processes stand in a queue beside the
// key. An attempt that finds the lock held takes a position with ZADD. The release sets the key to
// a reservation of 200 ms for the head of the queue, and wakes only that waiter. A free lock goes
// to any caller that asks, so single does not promise an order; package fair does.
//
// # What it does not promise
//
// The lock is as good as the memory of its one instance. Two processes can hold it at once if the
// instance forgets a key before its time:
//
//   - a restart without the data (quarantine of restarted servers helps, see package goredis)
//   - a failover to a replica that had not got the key yet
//   - eviction, or FLUSHALL
//   - a server clock that jumps forward
//
// A holder that is paused past its lease learns of it when it next looks at its context, not
// before. What it has sent by then still arrives. Grants have no numbers, so the resource can't
// reject a holder that is too late; see package fenced.
package single

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its locks in store. If the store is a [backends.QueuedStore],
// waiters stand in its queues, and a release wakes one of them.
func New(store backends.Store) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	if queues, ok := store.(backends.QueuedStore); ok {
		return instance.Queued(queues, false)
	}
	return instance.Plain(store)
}
