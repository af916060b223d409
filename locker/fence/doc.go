// Package fence guards the resource that a numbered lock protects. A lock alone can't stop the
// write of a holder that was paused, or a write that was delayed in the network, after another
// holder has the lock. The numbers of package fenced can, if the resource compares them:
//
//	holder     sends Lock.Fence with every write, and claims the resource before it reads what it will change
//	resource   accepts a write or a claim if its fence is not lower than the greatest that it has accepted,
//	           and stores the fence in the very step in which it writes
//
// An equal fence is accepted, since one holder may write more than once. A lower fence is refused:
// a later holder has used the resource. A fence of 0 is always refused: its grant is not numbered.
// Check and write must be one step, since another write fits between two. The guard must not lose
// the fence and keep the value.
//
// A resource learns of a later holder from its first claim or write. Until then it accepts the
// writes of an earlier holder, even after the later one has read. So claim before you read; a
// holder that writes without reading needs no claim.
//
// The idea is that of https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
//
// # In memory and in Redis
//
// [Register] is a guarded value in this process. [Script] guards a hash, through any client
// library.
//
// # In SQL
//
// A column of the row itself has the fence: BIGINT NOT NULL DEFAULT 0. $1 is the fence of the
// holder; the program refuses 0 before it asks.
//
//	write    UPDATE invoice SET total = $2, fence = $1 WHERE id = $3 AND fence <= $1
//	claim    UPDATE invoice SET fence = $1 WHERE id = $2 AND fence <= $1
//
// One row affected: done. None: refused, or there is no such row. Where the row may be missing,
// PostgreSQL and SQLite write in one statement, and the rows affected say the same:
//
//	INSERT INTO invoice (id, total, fence) VALUES ($3, $2, $1)
//	ON CONFLICT (id) DO UPDATE SET total = excluded.total, fence = excluded.fence
//	WHERE invoice.fence <= excluded.fence
//
// Elsewhere, insert the row with fence 0 unless it exists, then update it. MySQL affects no row
// that has the values already, unless the connection counts those that it finds (clientFoundRows in
// its Go driver): a write that is sent again would look refused. A row that is deleted takes its
// fence with it: mark it as deleted instead.
package fence
