package fenced_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/internal/instance"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A campaign acquires locks from a server that is killed and started again all the time, and logs
// every grant.
type campaign struct {
	kills, grants int // grants: between one kill and the next
	server        *redistest.Server
	locker        locker.Locker
}

const (
	takers = 6
	keys   = 3
	brief  = 50 * time.Millisecond // the ttl: how long a kill in the middle keeps a key locked

	patience = time.Minute // for what must happen on any machine
)

func (c campaign) run(t *testing.T) []history.Grant {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	var made atomic.Int64
	var failed atomic.Pointer[error] // the last error of an attempt
	began, logs := time.Now(), make([][]history.Grant, takers)
	for i := range takers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				key := fmt.Sprint("key ", (i+n)%keys)
				g := history.Grant{Key: key, Who: fmt.Sprint("taker ", i), Asked: int64(time.Since(began))}
				lease, err := c.locker.Acquire(ctx, contract.Request{Key: key, Token: contract.NewToken(), TTL: brief})
				switch {
				case err == nil:
					g.Answered, g.Fence = int64(time.Since(began)), lease.Fence
					logs[i] = append(logs[i], g)
					made.Add(1)
					_ = c.locker.Release(ctx, lease) // the server may be gone by now
				case !errors.Is(err, locker.ErrHeld):
					failed.Store(&err)
					time.Sleep(time.Millisecond) // the server is down
				}
			}
		})
	}
	for kill := range c.kills {
		until, deadline := made.Load()+int64(c.grants), time.Now().Add(patience)
		for made.Load() < until && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if made.Load() < until {
			t.Errorf("not within %v: %d grants after kill %d; the last failure: %v", patience, c.grants, kill, *failed.Load())
			break
		}
		c.server.Kill()
		c.server.Restart()
	}
	stop()
	all.Wait()
	var grants []history.Grant
	for _, log := range logs {
		grants = append(grants, log...)
	}
	t.Logf("%d grants under %d kills in %v", len(grants), c.kills, time.Since(began).Round(time.Millisecond))
	return grants
}

// start returns a server and the store of a client on it.
func start(t *testing.T, args ...string) (*redistest.Server, numbering) {
	t.Helper()
	logging.Disable() // go-redis logs every failed dial
	server := redistest.Start(t, redistest.WithArgs(args...))
	// After PoolSize failed dials go-redis would not try for a second.
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1, MaxRetries: -1, PoolSize: 10_000})
	t.Cleanup(func() { client.Close() })
	return server, goredis.New(client)
}

func TestNumbersOnlyRiseUnderKills(t *testing.T) {
	kills, grants := 5, 100
	if os.Getenv("LOCKSTEP_TORTURE") == "1" {
		kills = 50
	}
	for name, args := range map[string][]string{
		"AOF always":     {"--appendonly", "yes", "--appendfsync", "always"},
		"no persistence": nil, // numbers follow the clock
	} {
		t.Run(name, func(t *testing.T) {
			server, store := start(t, args...)
			log := campaign{kills, grants, server, fenced.New(store)}.run(t)
			if len(log) < kills*grants {
				t.Errorf("%d grants under %d kills; want %d", len(log), kills, kills*grants)
			}
			if found := history.Inversions(log); len(found) > 0 {
				t.Errorf("%d inversions, the first: %v", len(found), found[0])
			}
		})
	}
}

// numbering is a store that numbers grants in both ways.
type numbering interface {
	backends.NumberedStore
	backends.FencedStore
}

// A mutant: the number is a plain counter. It shows that the campaign can find numbers that fall.
func TestNumbersThatAreCountedFallWhenTheServerForgetsThem(t *testing.T) {
	server, store := start(t)
	counting := instance.New(store, store.SetNXFenced)
	if found := history.Inversions(campaign{2, 50, server, counting}.run(t)); len(found) == 0 {
		t.Error("no inversions: the campaign does not find any")
	}
}
