// Package differential asks all stores the same and compares what they answer. It has tests only.
//
// TestAllStoresAnswerAlike draws sequences of operations, all that package backends knows but for its queues, and what other
// software may do beneath, and performs them on a store in memory, on an embedded server, and on a real one through go-redis and
// redigo with and without scripts (rueidis is a module of its own, and not among them). What an answer may be is said by a
// model (model_test.go). Time is in it: the model knows of every value between which two instants it ends, by the test's own
// clock, and where an operation is so near to that end that either answer is right, it goes on with both. A sequence that a
// store answers otherwise is made as short as it can be, and printed with the command that performs it again:
//
//	go test ./internal/verify/differential -run TestAllStoresAnswerAlike -operations 50000
//	go test ./internal/verify/differential -run 'TestAllStoresAnswerAlike/redis_by_redigo$' -seed 42 -operations 250
//
// TestAllStoresKeepTheSameQueue does it with those who wait, who have a model of their own: grants, refusals and positions, and not
// what depends on the time that a reservation lasts, nor when those who go have given up their places.
//
// TestConcurrentCallsAreLinearizable has many clients ask at once, some of whom do not hear the answer, and looks for an
// order of the calls in which the same model would have answered so. TestTheGuardIsLinearizable does it with the guards of
// package fence. That the tests find what is wrong is tested as well: with stores, registers and scripts that are broken.
package differential
