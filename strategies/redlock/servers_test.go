package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/strategies/redlock"
)

// TestContractOnServers runs for one quorum through go-redis; with LOCKSTEP_TORTURE=1 for all, and
// through redigo.
func TestContractOnServers(t *testing.T) {
	for _, q := range quorums {
		if !full.Size() && (q.n != 5 || q.w != 3) {
			continue
		}
		for _, kind := range []string{"plain", "fenced"} {
			for name, on := range map[string]func(t *testing.T) beneath.Start{"go-redis": beneath.GoRedis, "redigo": beneath.Redigo} {
				t.Run(fmt.Sprintf("%s %d of %d, %s", kind, q.w, q.n, name), func(t *testing.T) {
					if name == "redigo" {
						full.Only(t)
					}
					t.Parallel()
					h := behind(inTurn(t, q.n, on), q.n, q.w, unhurried(kinds[kind]))
					h.NoTransfer = kind == "fenced"
					lockertest.Run(t, h)
				})
			}
		}
	}
}

// unhurried gives nodes more time than a busy machine needs, and less than a sentence waits. A
// failed attempt waits for the release of its grants, which may hang in a fault meant for another
// attempt.
func unhurried(build build) build {
	return func(stores []backends.FencedStore, opts ...redlock.Option) (locker.Locker, error) {
		return build(stores, append(opts, redlock.WithNodeLimit(5*time.Second))...)
	}
}

// inTurn starts n servers that all sentences share. It gives each sentence a store on the first
// server, then one on the second, and so on.
func inTurn(t *testing.T, n int, on func(t *testing.T) beneath.Start) beneath.Start {
	servers := make([]beneath.Start, n)
	for i := range servers {
		servers[i] = on(t)
	}
	var mu sync.Mutex
	given := map[*testing.T]int{}
	return func(t *testing.T) (beneath.Store, beneath.Outside) {
		mu.Lock()
		i := given[t]
		given[t]++
		mu.Unlock()
		return servers[i](t)
	}
}
