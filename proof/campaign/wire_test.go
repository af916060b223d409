package campaign

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/proof/full"
)

// TestFaultsOnTheWire asks what happens to a lock when a request or its reply is lost, late or
// reset between a client library and redis-server, or when nothing passes any more. Each case is
// one operation of one strategy through one client library, with one fault on some of its nodes.
// Then the network works again. For each case:
//
//   - The answer is one of three: done, held, unknown. It is held only if another holder has the
//     lock, and done only if enough nodes have done it.
//   - An owner that has a lock and takes it again never gets held. It keeps its first hold,
//     whatever happens to the second.
//   - While the lock is held, nobody else gets it. In the end everybody does.
//   - The token of an unknown attempt is removed long before its TTL ends.
//   - An extension that failed leaves the lease as it was, and the lock can be extended and
//     unlocked.
//   - After that nothing more is sent, and no connection or goroutine stays.
//
// It prints for each fault how the cases ended, and how long tokens of failed attempts stayed after
// the network worked again. This is the work of the cleanup, which should take less than a second.
//
//	go test ./proof/campaign -run TestFaultsOnTheWire -v                               a part, the same every time
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run TestFaultsOnTheWire -v            all
//	LOCKSTEP_TORTURE=1 go test ./proof/campaign -run 'TestFaultsOnTheWire/redlock_2_of_3/redigo$/extend/reply_lost' -v
//
// To change it: the faults are in wire_fault_test.go, the ways to use a row of package table in
// wire_strategy_test.go, the clients and servers in wire_stage_test.go, the operations and
// assertions in wire_operation_test.go. A new line in one of the tables is combined with all others.
func TestFaultsOnTheWire(t *testing.T) {
	atLast := nothingRunsOn(t)
	stage := setUp(t)
	cases, crowd := all(), atOnce
	total := len(cases)
	if !full.Size() {
		cases, crowd = cases[:part], part
	}
	began := time.Now()
	results := make([]result, len(cases))
	next := make(chan int)
	var workers sync.WaitGroup
	for range crowd {
		workers.Go(func() {
			for i := range next {
				t.Run(cases[i].String(), func(t *testing.T) {
					results[i] = cases[i].given(true) // unless it runs to its end
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
	t.Logf("%d of %d cases in %v; in %d the fault did not happen\n%s", n, total, time.Since(began).Round(time.Second), missed, summary(results))
	if missed > n/20 {
		t.Errorf("in %d of %d cases the fault did not happen: the machine is too busy, or the test is wrong", missed, n)
	}
	for _, s := range strategies {
		if c := cell(results, s.name); c.Trials > 0 {
			c.Report(t)
		}
	}
}

const (
	part   = 640 // cases of a normal run, all at once: they wait most of the time
	atOnce = 320 // cases of a full run
	seed   = 5   // decides the order of the cases, and so the part of a normal run
)

// A wireCase is one operation under one fault.
type wireCase struct {
	number    int // seeds the dice of the case
	strategy  strategy
	library   library
	operation operation
	fault     fault
	lasting   bool // the fault meets all messages of the operation, not only the first
	hit       int  // the number of nodes with the fault
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

// all returns all combinations, in an order that depends only on the seed.
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

// subsets returns one node, the greatest minority, the smallest majority, and all nodes.
func subsets(nodes int) (sizes []int) {
	for _, n := range []int{1, (nodes - 1) / 2, nodes/2 + 1, nodes} {
		if n > 0 && (len(sizes) == 0 || n > sizes[len(sizes)-1]) {
			sizes = append(sizes, n)
		}
	}
	return sizes
}
