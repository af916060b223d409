// Package allocations counts what a call allocates.
package allocations

import "runtime"

// Of returns how many allocations a call of f makes, on average over the runs. Unlike
// [testing.AllocsPerRun], it does not round down: of two callers, 4.99 and 9.01 allocations are 4
// apart, and rounded down they are 5.
//
// It counts the allocations of the whole process, on one CPU. With the race detector, a [sync.Pool]
// drops a quarter of what it is given, by chance: take thousands of runs, and allow for it.
func Of(runs int, f func()) float64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f() // what is allocated once
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(runs)
}
