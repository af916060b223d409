// Package fence is the other half of a numbered lock: the guard at the resource that the lock protects. A lock alone
// can't stop a holder that was paused, or a write that was held up in a network, until the lock is someone else's. The
// numbers of package fenced can, if the resource looks at them:
//
//	holder     sends Lock.Fence with every write, and claims the resource before it reads what it will change
//	resource   accepts a write or a claim if its fence is not lower than the greatest that it has accepted,
//	           and stores the fence in the very step in which it writes
//
// Equal is accepted, since one holder may write more than once. Lower is refused: the lock has been granted to someone
// else since, who was here. A fence of 0 is refused always: nobody has numbered that grant. A check in one step and
// a write in the next is no guard, since another write fits in between; nor is one that may forget the fence and keep
// the value.
//
// The claim is there because a resource knows of a later holder only when that one comes: until then it accepts what an
// earlier one sends, also after the later one has read. Who writes without having read needs no claim.
//
// The idea is that of https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
//
// # In memory and in Redis
//
// [Register] is a guarded value in this process. [Script] guards a hash, through any client library.
//
// # In SQL
//
// A column of the row itself has the fence: BIGINT NOT NULL DEFAULT 0. $1 is the fence of the holder; the program
// refuses 0 before it asks.
//
//	write    UPDATE invoice SET total = $2, fence = $1 WHERE id = $3 AND fence <= $1
//	claim    UPDATE invoice SET fence = $1 WHERE id = $2 AND fence <= $1
//
// One row affected: done. None: refused, or there is no such row. Where the row may be missing, PostgreSQL and SQLite
// write in one statement, and the rows affected say the same:
//
//	INSERT INTO invoice (id, total, fence) VALUES ($3, $2, $1)
//	ON CONFLICT (id) DO UPDATE SET total = excluded.total, fence = excluded.fence
//	WHERE invoice.fence <= excluded.fence
//
// Elsewhere, insert the row with fence 0 unless it exists, then update it. MySQL affects no row that has the values
// already, unless the connection counts those that it finds (clientFoundRows in its Go driver): a write that is sent
// again would look refused. A row that is deleted takes its fence with it: mark it as deleted instead.
package fence
