package redlock_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// TestGoroutinesLeftByAStoppedServerAreBoundedAndEnd counts the goroutines of the process, so no other
// test runs beside it.
func TestGoroutinesLeftByAStoppedServerAreBoundedAndEnd(t *testing.T) {
	locks := 2000
	if full.Size() {
		locks = 10_000
	}
	for client, kept := range map[string]int{"go-redis": 300, "redigo": 700} { // goroutines, however many locks there were
		if client == "redigo" && !full.Size() {
			continue // its dials fail after half a minute
		}
		t.Run(client, func(t *testing.T) {
			servers := redistest.StartN(t, 3)
			c := locker.New(byDefault[client].quorum(t, servers, plain, redlock.WithNodeLimit(redlock.DefaultNodeLimit)))
			before := runtime.NumGoroutine()
			servers[0].Pause()
			began := time.Now()
			failed, most := lockEach(t, c, locks)
			took := time.Since(began)
			if failed > locks/2 { // the working nodes have taken longer than the limit
				t.Errorf("%d of %d failed", failed, locks)
			}
			left := 0
			await(t, "what is left of the calls is bounded", func() bool { left = usual() - before; return left < kept })
			t.Logf("%d locks in %v, %d failed: up to %d goroutines, and %d of what is left", locks, took.Round(time.Millisecond),
				failed, most-before, left)

			servers[0].Resume()
			began = time.Now()
			drained := lasting(t, "nothing is left", func() bool {
				const few = 20 // goroutines that other tests may have left
				return locked(t, servers) == 0 && runtime.NumGoroutine() <= before+few
			})
			t.Logf("drained %v after it went on", drained.Sub(began).Round(time.Millisecond))
		})
	}
}

// lockEach locks and unlocks as many keys as locks says, with leases that do not end by themselves.
// It returns how many failed, and the greatest number of goroutines.
func lockEach(t *testing.T, c *locker.Client, locks int) (failed, most int) {
	for i := range locks {
		lock, err := c.TryLock(t.Context(), fmt.Sprint("key ", i), locker.WithTTL(10*time.Minute))
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		if err != nil {
			failed++
		}
		most = max(most, runtime.NumGoroutine())
	}
	return failed, most
}

// usual returns the usual number of goroutines. Timers that fire together make many for an instant.
func usual() int {
	samples := make([]int, 500)
	for i := range samples {
		samples[i] = runtime.NumGoroutine()
		time.Sleep(4 * time.Millisecond)
	}
	slices.Sort(samples)
	return samples[len(samples)/2]
}

// lasting waits until holds stays true for longer than a pause of the cleanups. It returns since
// when.
func lasting(t *testing.T, what string, holds func() bool) (since time.Time) {
	t.Helper()
	since = time.Now()
	await(t, what, func() bool {
		if now := time.Now(); !holds() {
			since = now
		}
		return time.Since(since) > 3*time.Second
	})
	return since
}
