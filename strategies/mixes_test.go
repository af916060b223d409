package strategies_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

// TestNoStrategyOfTheQueueStarvesAnother: four Clients of each strategy lock one key again and
// again, until there were enough grants. No party gets less than a third of its fair share.
func TestNoStrategyOfTheQueueStarvesAnother(t *testing.T) {
	grants, clients := 300, 4
	if full.Size() {
		grants = 3000
	}
	server := redistest.Start(t)
	conn := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 30})
	t.Cleanup(func() { conn.Close() })
	over := map[string]func() locker.Locker{
		"single": func() locker.Locker { return single.New(goredis.New(conn)) },
		"fair":   func() locker.Locker { return fair.New(goredis.New(conn)) },
		"fenced": func() locker.Locker { return fenced.New(goredis.New(conn)) },
	}
	for _, parties := range [][]string{{"single", "fenced"}, {"fair", "fenced"}, {"single", "fair"}, {"single", "fair", "fenced"}} {
		t.Run(fmt.Sprint(parties), func(t *testing.T) {
			var mu sync.Mutex
			var wg sync.WaitGroup
			shares, all := map[string]int{}, 0
			for _, party := range parties {
				for range clients {
					c := locker.New(over[party]())
					wg.Go(func() {
						for {
							l, err := c.Lock(t.Context(), t.Name())
							if err != nil {
								t.Errorf("Lock of %s = %v", party, err)
								return
							}
							mu.Lock()
							over := all == grants
							if !over {
								all++
								shares[party]++
							}
							mu.Unlock()
							time.Sleep(time.Millisecond) // of work
							if err := l.Unlock(t.Context()); err != nil {
								t.Errorf("Unlock of %s = %v", party, err)
							}
							if over {
								return
							}
						}
					})
				}
			}
			wg.Wait()
			t.Logf("%d grants: %v", grants, shares)
			for _, party := range parties {
				if least := grants / len(parties) / 3; shares[party] < least {
					t.Errorf("%s has %d of %d grants; want at least %d", party, shares[party], grants, least)
				}
			}
		})
	}
}

// A Client without wake-ups or scripts, or with shared keys, is not in the queue. It may starve, so
// no share is promised where one takes part. The lock still excludes, and a release still reaches
// the waiters in the queue: the last grant of every party comes.
func TestALockOutsideTheQueueStillExcludes(t *testing.T) {
	grants := 40 // of each party
	if full.Size() {
		grants = 400
	}
	server := redistest.Start(t)
	conn := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 30})
	t.Cleanup(func() { conn.Close() })
	inTheQueue := map[string]locker.Locker{
		"single": single.New(goredis.New(conn)), "fair": fair.New(goredis.New(conn)), "fenced": fenced.New(goredis.New(conn)),
	}
	beside := map[string]locker.Locker{
		"single without wakes":   single.New(goredis.New(conn, redisstore.WithoutWakes())),
		"fenced without wakes":   fenced.New(goredis.New(conn, redisstore.WithoutWakes())),
		"single without scripts": single.New(goredis.New(conn, redisstore.WithoutScripts())),
	}
	for queued, first := range inTheQueue {
		for other, second := range beside {
			t.Run(queued+" and "+other, func(t *testing.T) {
				t.Parallel()
				var wg sync.WaitGroup
				var holders atomic.Int32
				last := map[string]time.Duration{}
				var mu sync.Mutex
				began := time.Now()
				for party, strategy := range map[string]locker.Locker{queued: first, other: second} {
					for range 2 {
						c := locker.New(strategy)
						wg.Go(func() {
							for range grants / 2 {
								l, err := c.Lock(t.Context(), t.Name())
								if err != nil {
									t.Errorf("Lock of %s = %v", party, err)
									return
								}
								if holders.Add(1) > 1 {
									t.Error("two hold it at once")
								}
								time.Sleep(time.Millisecond) // of work
								holders.Add(-1)
								if err := l.Unlock(t.Context()); err != nil {
									t.Errorf("Unlock of %s = %v", party, err)
								}
							}
							mu.Lock()
							defer mu.Unlock()
							last[party] = time.Since(began)
						})
					}
				}
				wg.Wait()
				t.Logf("the last grants: %v", last)
			})
		}
	}
}
