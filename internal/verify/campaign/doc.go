// Package campaign has no code: its tests are experiments on real redis-server processes, with a network, wake-ups and
// processes that fail on purpose. They are written to be read, run and changed by a person who doubts what the
// documentation says. One file is one experiment: its comment says what is asked, how to run it alone, and where to turn.
//
//	wire_test.go       requests and replies that are lost, late or reset, in every operation
//	handover_test.go   a hundred waiters whose wake-ups break and whose first in line gives up
//	polling_test.go    waiters who miss a wake-up
//	killed_test.go     waiters and holders whose process is killed
//	crashes_test.go    servers and holders that are killed and stopped, and updates that are counted
//	powercuts_test.go  servers that lose their power, and with it what they have not synced
//	clocks_test.go     servers whose clock is set
//	ourclocks_test.go  clients whose clock is set
//	failovers_test.go  masters that Sentinel replaces by replicas, which have all or not
//	resharding_test.go locks whose slot moves through a Redis Cluster
//	soak_test.go       an hour of all of it, in which nothing may grow
//
// Each prints what it did and measured: run with -v to read it. A normal run takes a part of what there is, the same every
// time; LOCKSTEP_TORTURE=1 takes all of it. Nothing is asserted about how fast a machine is: what takes time is measured and
// printed, and only what must have happened at last is checked.
package campaign
