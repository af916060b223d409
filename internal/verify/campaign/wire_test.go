package campaign

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestFaultsOnTheWire asks what becomes of a lock when a request or its reply is lost, late or reset on its way between a
// client library and redis-server, or when nothing passes any more. Each case is one operation of one strategy through one
// client library, with one fault on some of its nodes; then the network is well again. For each:
//
//   - The answer is one of three: done, refused, unknown. It is refused only if someone else has the lock, and done only if
//     enough nodes have done it.
//   - An owner who has a lock and takes it again is never refused, and has what he had before, whatever becomes of that.
//   - While the lock is held, nobody else is granted it. In the end everybody is.
//   - What an attempt with an unknown outcome has left is removed, long before its TTL.
//   - An extension that failed leaves the lease as it was, and the lock can be extended and unlocked.
//   - Nothing is sent any more after that, and no connection or goroutine stays.
//
// It prints for each fault how many cases ended how, and how long tokens of failed attempts stayed in a network that was
// well again: that is clean-up's work, and meant to take less than a second.
//
//	go test ./internal/verify/campaign -run TestFaultsOnTheWire -v                               a part, the same every time
//	LOCKSTEP_TORTURE=1 go test ./internal/verify/campaign -run TestFaultsOnTheWire -v            all
//	LOCKSTEP_TORTURE=1 go test ./internal/verify/campaign -run 'TestFaultsOnTheWire/redlock_2_of_3/redigo$/extend/reply_lost' -v
//
// To change it: the faults are in wire_fault_test.go, the strategies in wire_strategy_test.go, who takes part in
// wire_stage_test.go, what is done and asserted in wire_operation_test.go. A new line in one of the tables is crossed with all others.
func TestFaultsOnTheWire(t *testing.T) {
	atLast := nothingRunsOn(t)
	stage := setUp(t)
	cases := all()
	total := len(cases)
	if !torture {
		cases = cases[:part]
	}
	began := time.Now()
	results := make([]result, len(cases))
	next := make(chan int)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := range next {
				t.Run(cases[i].String(), func(t *testing.T) {
					results[i] = cases[i].given(true) // unless it comes to its end
					results[i] = cases[i].run(t, stage)
				})
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	workers.Wait()
	atLast()
	n, missed := ran(results)
	t.Logf("%d of %d cases in %v; in %d the fault has not happened\n%s", n, total, time.Since(began).Round(time.Second), missed, summary(results))
	if missed > n/20 {
		t.Errorf("in %d of %d cases the fault has not happened: this machine is too busy, or they show nothing", missed, n)
	}
	for _, s := range strategies {
		if c := cell(results, s.name); c.Trials > 0 {
			c.Report(t)
		}
	}
}

const (
	part   = 640 // cases of a normal run
	atOnce = 320 // cases: they wait most of the time
	seed   = 5   // of the order of the cases, and so of the part that a normal run takes
)

// A wireCase is one operation under one fault.
type wireCase struct {
	number    int // gives the case dice of its own, whatever else runs
	strategy  strategy
	library   library
	operation operation
	fault     fault
	lasting   bool // the fault meets all that is sent during the operation, not only what is sent first
	hit       int  // so many nodes
}

func (c wireCase) String() string {
	span := "once"
	if c.lasting {
		span = "lasting"
	}
	return strings.Join([]string{
		c.strategy.name, c.library.name, c.operation.name, c.fault.name, span, fmt.Sprintf("%d of %d nodes", c.hit, c.strategy.nodes),
	}, "/")
}

// all crosses everything with everything, in an order that depends on the seed only.
func all() []wireCase {
	var cases []wireCase
	for _, s := range strategies {
		for _, l := range libraries {
			for _, o := range operations {
				for _, f := range faults {
					for _, lasting := range []bool{false, true} {
						if !lasting && f.alwaysLasts() {
							continue
						}
						for _, hit := range subsets(s.nodes) {
							cases = append(cases, wireCase{len(cases), s, l, o, f, lasting, hit})
						}
					}
				}
			}
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	return cases
}

// subsets are one node, the greatest minority, the smallest majority, and all.
func subsets(nodes int) (sizes []int) {
	for _, n := range []int{1, (nodes - 1) / 2, nodes/2 + 1, nodes} {
		if n > 0 && (len(sizes) == 0 || n > sizes[len(sizes)-1]) {
			sizes = append(sizes, n)
		}
	}
	return sizes
}
