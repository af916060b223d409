// Package fenced is package single with a number for every grant. With the number the resource
// behind the lock can reject a holder that is too late: it accepts a write only if its number is
// not lower than the greatest that it has seen. Package locker/fence has guards for this. The idea
// is called "fencing tokens" in
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
//
// With Redis the commands are
//
//	acquire   one script: SET key token PX ttl    if key is free; and in the same step
//	          SET counter fence PX a day or more  where fence = max(last + 1, TIME in µs)
//	extend    PEXPIRE key ttl                     if key holds token and would end sooner
//	release   DEL key, PUBLISH a wake             if key holds token
//
// Waiting processes stand in the same queue as those of package single. An attempt that finds the
// lock held takes a position. A release reserves the key for the head of the queue, which gets its
// number when it takes the key.
//
// The value under the key is the same as that of single. So fenced and single exclude each other,
// and so does other software that locks with SET NX PX. Grants of single and of other software have
// no number. The counter is a key of its own beside the lock ({key}:, a NUL, and fence).
//
// # What it promises beyond single
//
// No two numbers are equal. If one grant was answered before another was asked for, the later grant
// has the greater number. This holds also
//
//   - when two processes hold the lock at once
//   - after the counter was lost (restart without the data, FLUSHALL), as long as the server's
//     clock does not go back
//
// Retransmissions and extensions keep the number of a grant. Numbers are from 1 to 2^53-1, with
// gaps.
//
// # What it does not promise
//
// What single does not promise, fenced does not promise either. Numbers fall if the counter is lost
// and the clock goes back as well. They fall also in a failover to a server that lacks the counter
// and whose clock is behind. A number protects nothing unless the resource looks at it.
package fenced

import (
	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
)

// New returns a Locker that keeps its locks in store. If the store is a [backends.QueuedStore] as
// well, waiters stand in its queues. They share these queues with the waiters of single and fair.
func New(store backends.NumberedStore) locker.Locker {
	if l := instance.Missing(store); l != nil {
		return l
	}
	return instance.Numbered(store)
}
