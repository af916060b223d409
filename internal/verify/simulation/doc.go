// Package simulation plays schedules: a few processes contend for a few locks while the network
// loses, doubles and delays their messages, nodes stand still, restart and forget, and clocks of
// nodes and of processes are set. The strategies and the locker.Client are the real ones. The store
// of each node is that of package memory. The network between them, the time and all chance are not
// real, so that ten seconds pass in milliseconds, and a schedule that was played can be played
// again.
//
//	worker ── locker.Client ── recorder ── strategy ──┬── link ~~ node 1: a store in memory
//	worker ──┘                                        ├── link ~~ node 2
//	              the same for each process           └── link ~~ node 3
//
// # How to read it
//
// schedule.go sets the scene: how many processes, workers and keys. workload.go is what a worker
// does, network.go what becomes of a message, queues.go of a place in a queue and of a wake,
// node.go what can befall a node, fault.go when it does. history.go is what is written down, and
// transcript.go how it is told. Each check_*.go is one invariant of docs/safety.md, with its
// sentence, over such a history; expect.go says which a strategy keeps under which fault; cells.go
// counts.
//
// # What is played of the queues
//
// The links are stores with queues, so single, fair and fenced wait in those of the node; the
// others are woken all at once, as single is over a store without queues. Under "mixed" the
// processes have different ones of the three, on the same keys. There are up to six processes, so
// that a queue is now and then longer than what those in it look for by themselves. All that
// package redisstore sends for a queue is a message here: the attempt that takes a place, the wake to
// one waiter, and that a waiter gives up. Each may be lost, late or doubled like any other, a wake
// oftener: three of ten are lost under net and storm, and one of ten comes when the reservation is
// over. The first of a queue is killed or cut off just when it is his turn. Places stay after their
// waiter has given up. Nodes restart with a queue and forget it. In one schedule of two the node
// knows which processes are connected, and passes over the dead; in the others it can't, as in a
// cluster.
//
// Three things are checked. ORDER follows the queue of the node step by step, under every fault: a
// lock that is given up is reserved for the first and taken by nobody else. Of fair it also says,
// where nothing goes wrong, that who was told his place has the lock before who asks after that.
// LIVE has a bound on the time in which nobody has a lock that a Client waits for and can ask for:
// one look of the waiter (a quarter of what he has waited, 250 ms at least and 6 s at most; two
// seconds times his place when it is the fourth or later) and one Reservation for each waiter who
// was offered it meanwhile, each of whom counts once. Where no message gets lost it is 12 ms in
// place of the look, and in place of the Reservation of all but the dead.
//
// # What is played of outages
//
// Most calls wait with locker.WithWait, so they go on through restarts, silence and quarantines.
// LIVE says of them that they end with the lock or at their limit (and 100 ms for an attempt that
// is under way then), and that a waiter asks again after each error within its longest pause. A
// node in quarantine refuses grants only.
//
// # What is played of handover
//
// In one schedule of two, Clients hand leases over (locker.WithHandover) and have a worker more, so
// that somebody waits. The holds of a lease that is handed over follow each other under one token.
// An extension belongs to the hold during which it was sent. Under fair, nobody is promised the
// order of Clients then.
//
// # How to run it
//
//	go test ./internal/verify/simulation                                    11,136 schedules, fewer than a twentieth under -race
//	go test ./internal/verify/simulation -run Promises -v                   prints a line for each cell
//	go test ./internal/verify/simulation -run Promises -schedules 4000      a million: make simulate
//	go test ./internal/verify/simulation -run Fresh -fresh 200 -v           seeds that nobody has played: make fresh
//	go test ./internal/verify/simulation -run Promises -strategy redlock-5/4 -fault restart -schedules 5000 -seed 100000
//	go test ./internal/verify/simulation -run Defect -v                     finds twenty-nine defects that were put in on purpose
//
// The schedules of a cell have the seeds S, S+1, and so on; -seed is S, and 1 by default. So a
// normal run plays the same schedules every time, and a few beside them whose seeds are the date:
// all runs of a day (UTC) play the same ones, and each day has others. What fails prints the
// command that plays the one schedule again and tells what happened in it, line by line:
//
//	go test ./internal/verify/simulation -run TestReplay -v -strategy single -fault restart -seed 7
//
// # How to change it
//
// A new fault is a constant and a case of befall in fault.go, and a line in expect.go. A new
// strategy is a line in strategy.go. A new invariant is a file, a line in check.go, and a case in
// checkers_test.go that shows it fail. A new defect, to see whether the checkers find it, is a few
// lines in mutants_test.go: either a store that does something else, or a patch to a source file,
// which is compiled in for that test alone.
//
// # Why a replay is exact
//
// All time is that of a bubble of testing/synctest: it goes on when every goroutine waits.
// Goroutines run in any order between two instants, so no two things may happen at one instant if
// their order matters. Hence all delays are drawn to the nanosecond; and a draw depends on what it
// is for (this message of this attempt to this node), not on what was drawn before. Tokens, which
// are random, are told by who drew them. The jitter of waiting is drawn here, through
// locker.WithBackoff. What cannot be told apart is not told: when the end of a lease and that of a
// ctx fall on one instant, an error may name either, so that only its kind is recorded.
//
// # What it does not show
//
// Processes do not stand still here, since a bubble has one time for all: their network does, and a
// worker may not look at its context for a while. Times in a bubble do not have two readings: the
// bubble's is the monotonic clock, and a process has a wall clock beside it that is set (package
// wallclock), by which its Client and the stamps of legacy-getset go. Real servers, client
// libraries and machines are in other tests: see docs/safety.md.
package simulation
