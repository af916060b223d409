package strategies_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/redis/go-redis/v9"
)

// TestAHandOverCostsFewCommandsHoweverManyWait: many Clients wait for one key, each with a Store of
// its own. The release wakes only the head of the queue. These strategies send only scripts and
// commands about channels; all other commands that the server counts come from the scripts.
func TestAHandOverCostsFewCommandsHoweverManyWait(t *testing.T) {
	clients, locks := 60, 10
	if full.Size() {
		clients = 300
	}
	for name, over := range map[string]func(s *redisstore.Store) locker.Locker{
		"fenced":          func(s *redisstore.Store) locker.Locker { return fenced.New(s) },
		"fair":            func(s *redisstore.Store) locker.Locker { return fair.New(s) },
		"reentrant":       func(s *redisstore.Store) locker.Locker { return reentrant.New(s) },
		"semaphore of 10": func(s *redisstore.Store) locker.Locker { return semaphore.New(s, 10) },
		"writers":         func(s *redisstore.Store) locker.Locker { return rwlock.New(s).Writers() },
	} {
		t.Run(name, func(t *testing.T) {
			// On a busy machine the head of the queue may come late for its turn, which costs attempts.
			trial.WhileBusy(t, 2*time.Second, func(t testing.TB, _ time.Duration) {
				server := redistest.Start(t, redistest.WithArgs("--maxclients", "2000"))
				conn := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 50})
				t.Cleanup(func() { conn.Close() })
				var wg sync.WaitGroup
				start := make(chan struct{})
				for range clients {
					c := locker.New(over(goredis.New(conn)), locker.WithTTL(30*time.Second))
					wg.Go(func() {
						<-start
						for range locks {
							l, err := c.Lock(t.Context(), "key")
							if err != nil {
								t.Error(err)
								return
							}
							if err := l.Unlock(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				close(start)
				wg.Wait()
				calls, grants := sent(t, server), clients*locks
				t.Logf("%d clients, %d grants: %d commands, %.2f for each grant", clients, grants, calls, float64(calls)/float64(grants))
				if calls > 4*grants {
					t.Errorf("%d clients sent %d commands for %d grants; want at most 4 for each", clients, calls, grants)
				}
			})
		})
	}
}

// sent returns how many commands a server received, without those of scripts and those that open a
// connection.
func sent(t testing.TB, server *redistest.Server) (calls int) {
	t.Helper()
	reply, err := server.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	info, _ := reply.(string)
	for line := range strings.Lines(info) {
		name, stats, _ := strings.Cut(strings.TrimSpace(line), ":calls=")
		switch strings.TrimPrefix(name, "cmdstat_") {
		case "eval", "evalsha", "subscribe", "unsubscribe":
			number, _, _ := strings.Cut(stats, ",")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			calls += n
		}
	}
	return calls
}
