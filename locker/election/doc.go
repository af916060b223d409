// Package election elects one leader among the processes that want to lead. It is a loop around
// [locker.Client.Do], and works with every strategy that admits one holder:
//
//	e := election.New(locker.New(fenced.New(store)), "billing/leader")
//	err := e.Run(ctx, func(ctx context.Context, t election.Term) error {
//		return bill(ctx, t.Number) // until ctx ends
//	})
//
// # Algorithm
//
// The leader is the holder of the lock on the key. A process that calls Run is a candidate:
//
//	campaign   wait for the lock, as Lock does
//	lead       call lead; the Client renews the lease until lead has returned
//	resign     release the lock, after lead has returned
//	pause      25 to 50 ms, up to twice as long after each term that was shorter than the TTL, up to
//	           the TTL; then campaign again
//
// A campaign ends with the first error of the store. After the pause, campaigns under
// [locker.WithWait] follow, of 30 s each, until the store answers again. So the middleware of the
// Client sees the beginning of an outage at once, and every 30 s that it goes on. Run itself
// reports nothing. [Election.OnTerm] takes a hook that sees each term, for metrics and logs.
//
// # What it promises
//
//   - At most one term is unexpired at any time, as far as the strategy keeps two holders apart.
//   - The ctx of lead ends before another process can lead, whatever the store or the network does.
//     So does a nil of IsLeader. Both go by the clocks of this process, and ask nobody.
//   - The release is sent after lead has returned, and never before, while the lease lasts. The
//     lease is renewed until then, even if the ctx given to Run has ended. So a lead that takes a
//     minute to stop has that minute. When a lease has ended by the clocks of this process, what the
//     store may still have of it is removed at once.
//   - No other term of this Election begins before lead has returned, even if lead ignores its ctx.
//   - The numbers of terms rise strictly if the strategy numbers its grants: package fenced, and
//     redlock.NewFenced.
//   - When a leader dies, another candidate leads when the lease has ended: after the TTL at most,
//     and a moment. When a leader resigns, the lock goes to the head of the queue, where the
//     strategy has one (single, fair, fenced), and the old leader queues behind.
//
// # What it does not promise
//
// A leader that is paused between a look at its ctx and a write writes late, when another process
// may lead. The resource can refuse that write by the number of the term; package locker/fence has
// guards. Work that ignores its ctx goes on beside that of the next leader.
//
// A lead that does not return keeps its process from leading again and, while the store answers,
// every other process as well, also after the ctx of Run has ended. [locker.WithMaxHold] bounds a
// term.
//
// A campaign waits for the answer to an attempt for as long as the client library does. One without
// a timeout of its own can keep a candidate waiting on a connection that hangs.
//
// [Leader] and [Observe] ask a store who leads, for people and for programs that want to talk to the
// leader. What they say may be over, so it decides nothing.
//
// The strategy must admit one holder of a key. A semaphore would elect several leaders.
package election
