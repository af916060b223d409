// Package interop has no code. Its tests show that Lockstep and other software that locks in Redis
// exclude each other on the same key. So a team can migrate one program at a time, or never. The
// tests use real redis-servers and published packages, in the versions of go.mod and
// node/package-lock.json:
//
//	theirs                            servers   ours                           test
//	go-redsync/redsync                1         single, fenced                 TestRedsync
//	go-redsync/redsync                5         redlock, 3 of 5 and 4 of 5     TestRedsyncOfFive
//	bsm/redislock                     1         single, fenced                 TestRedislock
//	node-redlock 4 and 5 (npm)        1         single, fenced                 TestNodeRedlock/… on one server
//	node-redlock 4 and 5 (npm)        5         redlock, 3 of 5 and 4 of 5     TestNodeRedlock/… on five servers
//	StackExchange.Redis (.NET)        1         single, fenced                 TestStackExchangeRedis
//	ShedLock (Java)                   1         single, fenced                 TestShedLock
//	madelson/DistributedLock (.NET)   1         semaphore                      TestMadelsonSemaphore
//
// For StackExchange.Redis, ShedLock and the semaphore of madelson/DistributedLock, the tests send
// the commands that were read in their source. The other libraries run themselves, node-redlock in
// a process of its own.
//
// The table of sentences in interop_test.go runs for each library. A holder keeps the other side
// out. A waiter of the other side gets the lock by the release or by the end of the lease, and not
// before. An extension counts for the other side. A side that has lost the lock cannot touch the
// lock of the other side. A register under the lock loses no update under load from both sides.
//
// # What to know
//
// The other libraries send no wake-ups. A waiter of Lockstep that waits for them polls, every 250
// ms or sooner (locker.WithBackoff), and makes an attempt at once when their lease ends by itself.
// Their waiters poll as always.
//
// Two quorums must overlap. Each side needs more than half of the nodes, so every choice of
// redlock.WithQuorum excludes the other side. Both sides need the same list of nodes.
//
// node-redlock 5 (beta) repeats an attempt on several servers without releasing the grants of the
// attempt before, and takes these for another holder's. After a split vote it blocks itself for its
// TTL and longer, and several of its processes block everybody. With retryCount 0 and a loop around
// acquire, as in node/driver.js, it does not.
//
// redsync gives each server 5 % of the expiry to answer (WithTimeoutFactor), which is little for a
// short lease.
//
// The semaphore of madelson/DistributedLock keeps the same sorted set as strategies/semaphore:
// a member for each permit, scored by its end in milliseconds of the server. Both sides need the
// same limit. Its release sends no wake-up, and it does not know the queue of semaphore.WithOrder.
//
// LockTake with TimeSpan.MaxValue leaves a value without expiry. A waiter of Lockstep waits for it,
// and the error matches locker.ErrForeignKey beside ErrHeld.
//
// # A scheduler
//
// TestGocronRunsAShortJobOncePerTickWithAMinimumHold and the tests beside it run jobs of gocron v2
// on several instances. locker.As is their Locker, and an Election their Elector. The Locker
// excludes gocron-redis-lock, which locks with redsync. Without locker.WithMinHold, each instance
// runs a short job.
//
// # A database
//
// TestTheDocumentedSQLRefusesAHolderWhoIsLate and the tests beside it run the statements in the
// documentation of package locker/fence in a real SQL engine, SQLite.
//
// # Requirements
//
// redis-server; for TestNodeRedlock also node, npm and the npm registry. With
// LOCKSTEP_REQUIRE_REDIS=1 a test without them fails instead of being left out. npm installs into a
// temporary folder.
package interop
