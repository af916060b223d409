// Package differential makes the same calls to all stores and compares the answers. It has tests
// only.
//
// TestAllStoresAnswerAlike draws sequences of operations: all calls of package backends except
// queues, and the writes of other software to the same data. It performs them on a store in memory,
// on an embedded server, and on a real one through go-redis and redigo, with and without scripts.
// (rueidis is another module.) A model says which answers are right (model_test.go). The model has
// time: it knows for every value the two instants between which the value ends, by the clock of the
// test. If an operation is so near to that end that either answer is right, the model goes on with
// both. A sequence with a wrong answer is shortened, and printed with the command that performs it
// again:
//
//	go test -C proof/differential -run TestAllStoresAnswerAlike -operations 50000
//	go test -C proof/differential -run 'TestAllStoresAnswerAlike/redis_by_redigo$' -seed 42 -operations 250
//
// TestAllStoresKeepTheSameQueue does the same with waiters, which have a model of their own:
// grants, held answers and positions. It leaves out the length of a reservation, and when a waiter
// that leaves has left the queue. TestAllStoresKeepTheSameQueueOfHolds does it for holds, which have
// groups, limits and numbers. A waiter asks with one group and one limit until it is let in.
//
// TestConcurrentCallsAreLinearizable lets many clients call at once, and throws some answers away.
// It looks for an order of the calls in which the model gives the same answers.
// TestTheGuardIsLinearizable does this with the guards of package fence. Other tests check that
// broken stores, registers and scripts are found.
package differential
