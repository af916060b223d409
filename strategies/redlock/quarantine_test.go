package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redigo"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const shortQuarantine = 2 * time.Second // and up to 3 s

// inQuarantine are clients that do not trust a server which has just started, or which they saw
// restart.
var inQuarantine = map[string]func(quarantine time.Duration) reach{
	"go-redis, strict": func(quarantine time.Duration) reach {
		return func(tb testing.TB, server *redistest.Server) backends.FencedStore {
			return overGoRedis(tb, server, redisstore.WithMaxTTL(quarantine), redisstore.WithQuarantine(quarantine))
		}
	},
	"go-redis": func(quarantine time.Duration) reach {
		return func(tb testing.TB, server *redistest.Server) backends.FencedStore {
			return overGoRedis(tb, server, redisstore.WithMaxTTL(quarantine))
		}
	},
	"redigo, strict": func(quarantine time.Duration) reach {
		return func(tb testing.TB, server *redistest.Server) backends.FencedStore {
			store, pool := redigo.Open(server.Addr(), nil, redisstore.WithMaxTTL(quarantine), redisstore.WithQuarantine(quarantine))
			tb.Cleanup(func() { pool.Close() })
			return store
		}
	},
}

func overGoRedis(tb testing.TB, server *redistest.Server, opts ...redisstore.Option) *redisstore.Store {
	logging.Disable()
	store, client := goredis.Open(&redis.Options{Addr: server.Addr(), PoolSize: 1000}, opts...)
	tb.Cleanup(func() { client.Close() })
	return store
}

func TestAServerThatRestartsCountsAsDownForAsLongAsALeaseMayLive(t *testing.T) {
	for client, reach := range inQuarantine {
		t.Run(client, func(t *testing.T) {
			if client == "redigo, strict" {
				full.Only(t)
			}
			t.Parallel()
			const quarantine = shortQuarantine
			servers := redistest.StartN(t, 5)
			stores := reach(quarantine).all(t, servers)
			for i := range stores {
				trusted(t, stores[i])
			}
			held := quorumOver(t, stores[:3], plain, redlock.WithQuorum(3)) // the other servers have not taken part
			all := quorumOver(t, stores, plain)
			for round, inTime := 0, false; !inTime; round++ {
				if round == 5 {
					t.Fatal("this machine is too slow")
				}
				key := fmt.Sprint("key ", round)
				began, one, another := time.Now(), history.Hold{Key: key, Who: "one"}, history.Hold{Key: key, Who: "another"}
				lease := mustAcquire(t, held, contract.Request{Key: key, Token: contract.NewToken(), TTL: quarantine})
				one.Start, one.End = int64(time.Since(began)), int64(lease.Expires.Sub(began))
				servers[round%3].Kill()
				killed := time.Now()
				servers[round%3].Restart()
				await(t, "another holds it", func() bool {
					next, err := all.Acquire(t.Context(), contract.Request{Key: key, Token: contract.NewToken(), TTL: quarantine})
					another.Start = int64(time.Since(began))
					if err == nil {
						another.End = int64(next.Expires.Sub(began))
						return true
					}
					q := (*redlock.QuorumError)(nil)
					if errors.As(err, &q) && !lease.Ended() && errors.As(q.Votes[round%3].Err, new(*redisstore.QuarantineError)) {
						inTime = errors.Is(err, locker.ErrHeld) || inTime // two nodes have it, two do not, and one does not count
					}
					return false
				})
				if found := history.Overlaps([]history.Hold{one, another}); len(found) > 0 {
					t.Fatal(found)
				}
				trusted(t, stores[round%3])
				if after := time.Since(killed); after < quarantine {
					t.Errorf("trusted %v after it forgot", after)
				}
			}
		})
	}
}

// trusted waits until a store grants locks.
func trusted(t *testing.T, store backends.Store) {
	t.Helper()
	await(t, "the quarantine is over", func() bool {
		_, err := store.SetNX(t.Context(), "trusted", contract.NewToken(), time.Millisecond)
		return err == nil
	})
}

// TestQuarantineSavesABareMajority uses the load under which three of five lose locks to servers
// that forget.
func TestQuarantineSavesABareMajority(t *testing.T) {
	keys, grants := 60, int64(300)
	if full.Size() {
		keys, grants = 600, 20_000
	}
	for client, reach := range inQuarantine {
		t.Run(client, func(t *testing.T) {
			if client == "redigo, strict" {
				full.Only(t)
			}
			if !full.Size() {
				t.Parallel()
			}
			trial.WhileBusy(t, shortQuarantine, func(take testing.TB, quarantine time.Duration) {
				found := savesABareMajority(take, reach(quarantine), quarantine, keys, grants)
				if len(found) > 0 { // on any machine
					t.Errorf("%d overlaps, the first: %v", len(found), found[0])
				}
			})
		})
	}
}

func savesABareMajority(t testing.TB, reach reach, quarantine time.Duration, keys int, grants int64) (overlaps []history.Overlap) {
	servers := redistest.StartN(t, 5)
	disturb, kills := forgetting(servers, 5*quarantine/4) // so that two servers at once are in quarantine
	l := load{locker: reach.quorum(t, servers, plain), keys: keys, contenders: 3, ttl: quarantine}
	began := time.Now()
	holds := l.run(t, grants, disturb)
	took := time.Since(began).Round(time.Millisecond)
	found := history.Overlaps(holds)
	t.Logf("3 of 5: %d grants, %d kills, %d overlaps in %v", len(holds), *kills, len(found), took)
	return found
}
