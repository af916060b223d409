// Package campaign has no code. Its tests are experiments on real redis-server processes, with a
// network, wakes and processes that fail on purpose. They are written for a person who doubts the
// documentation: to be read, run and changed. One file is one experiment. Its comment says what the
// experiment asks, how to run it alone, and what to change.
//
//	wire_test.go       requests and replies that are lost, late or reset, in every operation
//	handover_test.go   a hundred waiters whose wakes are lost and whose heads leave the line
//	polling_test.go    waiters that miss a wake
//	killed_test.go     waiters and holders whose process is killed
//	newprocess_test.go a process that did not see the restart of a server
//	crashes_test.go    servers and holders that are killed and stopped, and updates that are counted
//	shares_test.go     permits, readers and writers, leaders and jobs, whose processes and servers fail
//	powercuts_test.go  servers that lose their power, and with it all that they have not synced
//	clocks_test.go     servers whose clock jumps
//	ourclocks_test.go  clients whose clock jumps
//	failovers_test.go  masters that Sentinel replaces by replicas, which have all locks or not
//	resharding_test.go locks whose slot moves through a Redis Cluster
//	million_test.go    a million locks at once on a cluster, which live by renewal
//	evictions_test.go  holds that an operator releases by force
//	soak_test.go       an hour of all of it, in which nothing may grow
//
// Each prints what it did and measured: run it with -v. A normal run does a part of each
// experiment, the same each time; LOCKSTEP_TORTURE=1 does all of it. No test asserts that a machine
// is fast. Times are measured and printed, and a test fails only if an event never comes.
package campaign
