package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/proof/matrix"
)

// A result is the result of a case.
type result struct {
	name     string
	strategy string
	fault    string
	outcome  outcome
	lingered time.Duration // how long a key that must go stayed after the network worked again
	missed   bool          // the fault did not happen, so the case shows nothing
	broken   bool
}

// given returns the result of a case that has not run.
func (c wireCase) given(broken bool) result {
	return result{name: c.String(), strategy: c.strategy.name, fault: c.fault.name, broken: broken}
}

const soon = time.Second // enough for a cleanup

// ran counts the cases that -run selects, and those of them that show nothing.
func ran(results []result) (n, missed int) {
	for _, r := range results {
		if r.fault != "" {
			n++
		}
		if r.missed {
			missed++
		}
	}
	return n, missed
}

// summary returns a table with a line for each fault.
func summary(results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s %6s %6s %8s %8s %9s   %s\n", "", "cases", "done", "held", "unknown", "violated", "the key stayed: p50, p99, max; over 1 s")
	for _, f := range append(faults, fault{name: "all"}) {
		of := slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.fault == "" || f.name != "all" && r.fault != f.name })
		count := func(is func(result) bool) (n int) {
			for _, r := range of {
				if is(r) {
					n++
				}
			}
			return n
		}
		with := func(o outcome) int { return count(func(r result) bool { return r.outcome == o }) }
		var stayed []time.Duration
		for _, r := range of {
			if r.lingered > 0 {
				stayed = append(stayed, r.lingered)
			}
		}
		fmt.Fprintf(&b, "%-24s %6d %6d %8d %8d %9d   %s; %d\n", f.name, len(of), with(done), with(busy), with(unknown),
			count(func(r result) bool { return r.broken }), spread(stayed), count(func(r result) bool { return r.lingered > soon }))
	}
	slowest := slices.Clone(results)
	slices.SortFunc(slowest, func(a, b result) int { return cmp.Compare(b.lingered, a.lingered) })
	for _, r := range slowest[:min(5, len(slowest))] {
		fmt.Fprintf(&b, "stayed %v: %s\n", r.lingered.Round(time.Millisecond), r.name)
	}
	return b.String()
}

// cell returns the cell of a strategy in the matrix of anomalies.
func cell(results []result, strategy string) matrix.Cell {
	c := matrix.Cell{
		Strategy: strategy, Fault: "messages lost, late or reset", Where: "redis-server",
		Command: command("TestFaultsOnTheWire/" + strategy),
	}
	for _, r := range results {
		if r.strategy != strategy || r.missed && !r.broken {
			continue
		}
		c.Trials++
		if r.broken {
			c.Violations++
		}
	}
	return c
}

// spread returns the median, the 99th percentile and the greatest of times, which it sorts.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	at := func(part float64) time.Duration {
		return times[min(int(part*float64(len(times))), len(times)-1)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%v, %v, %v", at(0.5), at(0.99), at(1))
}
