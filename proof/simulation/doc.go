// Package simulation plays schedules. In a schedule a few processes contend for a few locks.
// Meanwhile the network loses, doubles and delays their messages, nodes pause, restart and forget,
// and the clocks of nodes and processes jump. The strategies and the locker.Client are the real
// ones. The store of each node is that of package memory. The network, the time and all chance are
// simulated: ten seconds pass in milliseconds, and a schedule can be played again.
//
//	worker ── locker.Client ── recorder ── strategy ──┬── link ~~ node 1: a store in memory
//	worker ──┘                                        ├── link ~~ node 2
//	              the same for each process           └── link ~~ node 3
//
// # How to run it
//
//	go test ./proof/simulation                                    about 3,300 schedules; with -race, one schedule for each of a third of the cells
//	go test ./proof/simulation -run Promises -v                   prints a line for each cell
//	go test ./proof/simulation -run Promises -schedules 4000      a million: make simulate
//	go test ./proof/simulation -run Fresh -fresh 200 -v           seeds that nobody has played: make fresh
//	go test ./proof/simulation -run Promises -strategy redlock-5/4 -fault restart -schedules 5000 -seed 100000
//	go test ./proof/simulation -run Defect -v                     finds the defects that are put in on purpose
//
// The schedules of a cell have the seeds S, S+1, and so on; -seed is S, and 1 by default. So a
// normal run plays the same schedules each time. It also plays a few whose seeds are the date, which
// make test leaves out: they are the same in all runs of one day (UTC), and others on the next. A
// failure prints the command that plays its schedule again and prints what happened in it, line by
// line:
//
//	go test ./proof/simulation -run TestReplay -v -strategy single -fault restart -seed 7
//
// TestReplay passes also when it prints a violation: it shows a schedule, and other tests judge.
//
// # How to read it
//
//   - schedule.go makes the scene: the number of processes, workers and keys.
//   - workload.go is what a worker does, and kind.go what it does in some schedules instead.
//   - network.go is what happens to a message, queues.go to a position in a queue and to a wake.
//   - node.go is what can happen to a node, and fault.go when it happens.
//   - history.go is what is recorded, and transcript.go how it is printed.
//   - Each check_*.go is one invariant of proof/promises.md, and checks a history.
//   - expect.go says which invariants a strategy keeps under which fault. cells.go counts.
//
// # Queues
//
// A link is a store with a queue, so waiters of single, fair and fenced wait in the queue of the
// node. Under the other strategies a release wakes all waiters, as single does over a store without
// queues. Under "mixed" the processes use different ones of the three on the same keys. There are
// up to six processes, so some queues are longer than the part whose waiters look for themselves.
//
// Each request that package redisstore sends for a queue is a message here: the attempt that takes
// a position, the wake to one waiter, and the request to leave the queue. Each may be lost, late or
// doubled. Under net and storm three of ten wakes are lost, and one of ten comes after its
// reservation has ended. The head of a queue is killed or cut off at the moment when the lock is
// reserved for it. Some positions remain although their waiter has left. Nodes restart and forget
// their queues. In half of the schedules the node knows which processes are connected, and skips
// the others; in the other half it does not, as in a cluster.
//
// Under far each message takes more than 100 ms, so a round trip takes longer than the reservation for
// a waiter that is near. ORDER and RW-ORDER say there that every waiter takes its reservation in time.
//
// # Holds that share a key
//
// Semaphores and read-write locks have queues too. Under "semaphore-limits" some processes have two
// permits and others three. Under "rwlock" one of three processes writes. Two checkers follow the
// node step by step there. They know of a reservation by the wake of its waiter:
//
//   - RW-ORDER: nobody is let in whom the queue or a reservation keeps out, and all waiters at the
//     head that fit together are woken together. A semaphore in order keeps it as well.
//   - SEM-LIVE: nobody is refused while there is room.
//
// In half of the schedules of "semaphore" the permits have slots. SLOT says that no two holders have
// the same one.
//
// They do not judge schedules in which the clock of the node jumps, nor quorums.
//
// # Checkers of queues
//
// Two checkers are about queues:
//
//   - ORDER follows the queue of the node step by step, under every fault. A released lock is
//     reserved for the head, and nobody else takes it. Under fair, where nothing goes wrong, a
//     waiter that knows its position gets the lock before any that asks later.
//   - LIVE bounds the time in which a lock is free although a Client waits for it and can ask for
//     it. The bound is one look of the waiter, and one Reservation for each waiter that the lock
//     was reserved for meanwhile, each counted once. A look is a quarter of the time that the
//     waiter has waited, from 250 ms to 6 s, or two seconds times its position from the fourth on.
//     Where no message is lost it is 12 ms in place of the look, and in place of the Reservation of
//     each waiter that lives.
//
// # Outages
//
// Most calls wait with locker.WithWait, so they go on through restarts, silence and quarantines.
// LIVE says that they end with the lock or at their limit, plus 100 ms for an attempt that is then
// under way. A waiter asks again after each error within its longest pause. A node in quarantine
// refuses grants only.
//
// # Handover
//
// In half of the schedules the Clients hand leases over (locker.WithMaxHandovers), and have one worker
// more, so that somebody waits. The holds of a lease that is handed over follow each other under
// one token. An extension belongs to the hold during which it was sent. Under fair the order of
// Clients is then not promised.
//
// # Once per period, and several keys
//
// In some schedules the workers do what schedulers do at a tick: a Do with a minimum hold
// (locker.WithMinHold), whose work fails now and then. In others they take two or three of three
// keys at once (Client.DoAll), listed in any order. kind.go has both.
//
// # How to change it
//
//   - A new fault is a constant and a case of befall in fault.go, and a line in expect.go.
//   - A new strategy is a row of package table.
//   - A new invariant is a file, a line in check.go, and a case in checkers_test.go that shows it
//     fail.
//   - A new defect is a few lines in mutants_test.go: a store that does something else, or a patch
//     to a source file, which is compiled in for that test alone.
//
// # Why a replay is exact
//
// All time is that of a bubble of testing/synctest: it goes on when every goroutine waits.
// Goroutines run in any order between two instants, so no two things may happen at one instant if
// their order matters. Hence all delays are drawn to the nanosecond. A draw depends on its purpose
// (this message of this attempt to this node), not on earlier draws. Tokens are random, so the
// history names them by the worker that drew them. The jitter of waiting is drawn here, through
// locker.WithBackoff. Where two things fall on one instant, such as the end of a lease and that of
// a ctx, an error may name either, so only its kind is recorded.
//
// One order is left to the scheduler. Cleanups that begin at one instant stand in any order in the
// queue for a node. A schedule in which that matters has a few histories: of a quorum often, of one
// node seldom (-strategy semaphore-limits -fault storm -seed 7 has two). Play it a few times.
//
// # What it does not show
//
// Processes do not pause here, since a bubble has one time for all: their network pauses, and a
// worker may not look at its context for a while. The times of a bubble have no monotonic reading
// of their own. The bubble's time is the monotonic clock, and each process has a wall clock beside
// it that can jump (package wallclock). Its Client and the stamps of legacy-getset use that wall
// clock. Real servers, client libraries and machines are in other tests: see proof/README.md.
package simulation
