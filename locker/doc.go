// Package locker takes named locks that work across processes and machines.
//
// A [Client] waits for a lock, keeps its lease alive while it is held, and tells the holder when it
// is lost. How a lock is granted is up to a [Locker], which a strategy makes of a store:
//
//	locks := locker.New(single.New(goredis.New(client)))
//	l, err := locks.Lock(ctx, "invoice/42")
//	if err != nil {
//		return err
//	}
//	defer l.Unlock(ctx)
//	return charge(l.Context(), invoice)
//
// # Leases
//
// A lock is held under a lease: the store forgets it after its TTL, so that a holder that dies does
// not keep it for ever. Both sides count the time by their own clock. The holder counts from before
// its request, and takes off a margin (see [contract.Until]). So the lease ends for the holder before the
// store forgets it.
//
//	holder   asks ├──────────── believes ───────────┤ Expires
//	store         ·  ├───────────── remembers ─────────────┤
//	              └ Granted
//
//	          ┌──────── extended at a third of the TTL ─┐
//	          ▼                                         │
//	Lock ──► held ──────────────────────────────────────┘
//	          │
//	          ├─ Unlock ─────────────────────────────────► Context ends: ErrReleased
//	          └─ Expires reached, or the store says no ──► Context ends: ErrLost
//
// # What a lock does not promise
//
// At any time, at most one holder has a lease that has not ended by its clock. A lease can't take
// back what a holder has sent, nor stop a holder that does not look at its context: a process that
// is paused between a look and a write writes late. Where that would do harm, the resource must
// refuse the write, by the number that a fenced strategy gives every grant ([Lock.Fence]).
//
// Waiters of one Client get a lock in the order in which they asked for it. Between Clients the
// order is up to the strategy, and most promise none.
package locker
