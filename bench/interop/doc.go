// Package interop has no code: its tests show that Lockstep and other software that locks in Redis exclude one another on
// the same key, so that a team can move from one to the other a program at a time, or never. Real redis-servers, the
// others' published packages, in the versions that go.mod and node/package-lock.json name:
//
//	theirs                            servers   ours                           test
//	go-redsync/redsync                1         single, fenced                 TestRedsync
//	go-redsync/redsync                5         redlock, 3 of 5 and 4 of 5     TestRedsyncOfFive
//	bsm/redislock                     1         single, fenced                 TestRedislock
//	node-redlock 4 and 5 (npm)        1         single, fenced                 TestNodeRedlock/… on one server
//	node-redlock 4 and 5 (npm)        5         redlock, 3 of 5 and 4 of 5     TestNodeRedlock/… on five servers
//	StackExchange.Redis (.NET)        1         single, fenced                 TestStackExchangeRedis
//
// StackExchange.Redis is played: the test sends the commands of its LockTake, LockQuery, LockExtend and LockRelease, as read
// in its source. Each of the others runs as it is, node-redlock in a process of its own.
//
// What is shown for each is the table of sentences in interop_test.go: who has the lock keeps the other out, and lets a
// waiter of the other in by its release or by the end of its lease, and not before; an extension holds for the other; who
// has lost the lock to the other can't touch it; and a register that the lock guards loses no update under many of both.
//
// # What to know
//
// The others send no wake-ups. A waiter of ours that they keep waiting polls, every 250 ms or sooner (locker.WithBackoff),
// and comes at once when their lease ends by itself. Theirs poll as they always do.
//
// A quorum of ours and theirs must overlap: they need more than half of the nodes, and so do we, so any choice of
// redlock.WithQuorum excludes them. Both sides need the same list of nodes.
//
// node-redlock 5 (beta) retries an attempt on several servers without releasing what it got in the one before, and takes
// that for someone else's. After a split vote it blocks itself, and with others of its kind everybody, for its TTL and
// longer. With retryCount 0 and a loop around acquire, as in node/driver.js, it does not.
//
// redsync gives each server 5 % of the expiry to answer (WithTimeoutFactor): little, for a lease that is short.
//
// LockTake with TimeSpan.MaxValue leaves a value without expiry. It is waited for, and reported as
// locker.ErrForeignKey beside ErrHeld.
//
// # And a database
//
// TestTheDocumentedSQLRefusesAHolderWhoIsLate and its neighbours run the statements that package locker/fence documents in a
// real SQL engine, SQLite.
//
// # What is needed
//
// redis-server, and for TestNodeRedlock node, npm and the npm registry (LOCKSTEP_REQUIRE_REDIS=1
// forbids to leave tests out without). npm installs into a folder that ends with the test.
package interop
