// Package fenced is package single with every grant numbered, so that the resource behind the lock can refuse a holder who
// is too late: it accepts a write only if its number is not lower than the greatest it has seen. Package locker/fence has
// such guards. The idea is that of "fencing tokens" in
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
//
// With Redis the commands are
//
//	acquire   one script: SET key token PX ttl    if key is free; and in the same step
//	          SET counter fence PX a day or more  where fence = max(last + 1, TIME in µs)
//	extend    PEXPIRE key ttl                     if key holds token and would end sooner
//	release   DEL key, PUBLISH a wake             if key holds token
//
// Processes that wait stand in the queue of the key, as those of package single do and in the same
// one: a refused attempt takes a position, and a release reserves the key for the head of the
// queue, which draws its number when it takes the key.
//
// The value under the key is the one that single writes, so the two exclude one another, as does any other software that
// locks with SET NX PX; grants made by those are not numbered. The counter is a key of its own beside
// the lock ({key}:, a NUL, and fence).
//
// # What it promises beyond single
//
// If one grant was answered before another was asked for, the later one has the greater number, and no two are equal:
// also when two hold at once, and after the counter was lost (restart without the data, FLUSHALL) as long as the server's
// clock goes on. A grant has its number for as long as it lasts: retransmissions and extensions keep it. Numbers are
// from 1 to 2^53-1; they have gaps.
//
// # What it does not promise
//
// All that single does not promise. And a counter that is lost together with a clock that goes back, or a failover to a
// server that has neither the counter nor as late a clock, makes numbers fall. A number protects nothing unless the
// resource looks at it.
package fenced

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its locks in store. If the store is a [backends.QueuedStore] as
// well, waiters stand in its queues, which they share with those of single and fair.
func New(store backends.NumberedStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return instance.Numbered(store)
}
