package strategies_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/far"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// A round trip is longer than the reservation for a waiter that is near. All strategies whose waiters
// stand in a queue go on as they do nearby. LOCKSTEP_TORTURE=1 plays all of them, at each distance.
func TestFarClientsTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		over           func(s *redisstore.Store) locker.Locker
		ordered, alone bool
	}{
		"fair":   {func(s *redisstore.Store) locker.Locker { return fair.New(s) }, true, true},
		"rwlock": {func(s *redisstore.Store) locker.Locker { return rwlock.New(s).Writers() }, true, true},
		"single": {func(s *redisstore.Store) locker.Locker { return single.New(s) }, false, false},
		"fenced": {func(s *redisstore.Store) locker.Locker { return fenced.New(s) }, false, false},
		"semaphore": {func(s *redisstore.Store) locker.Locker {
			return semaphore.New(s, 1, semaphore.WithOrder())
		}, true, true},
	} {
		if name != "fair" && !full.Size() { // the fault far of the simulation plays all of them
			continue
		}
		for _, roundTrip := range far.RoundTrips() {
			t.Run(name+"/"+roundTrip.String(), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				open := func(addr string) *redisstore.Store {
					conn := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 10 * time.Second, ContextTimeoutEnabled: true})
					t.Cleanup(func() { conn.Close() })
					return goredis.New(conn, redisstore.WithMaxTTL(time.Minute))
				}
				addr := far.Relay(t, server.Addr(), roundTrip)
				var clients []*locker.Client
				for range far.Clients {
					clients = append(clients, locker.New(c.over(open(addr)), locker.WithTTL(time.Minute)))
				}
				store := open(server.Addr())
				far.Run(t, roundTrip, store, locker.New(c.over(store)), clients, c.ordered, c.alone)
			})
		}
	}
}
