package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/redis/go-redis/v9"
)

func TestNumbersOnlyRiseUnderKillsAndRandomExpiry(t *testing.T) {
	kills, grants := 5, 60
	if full.Size() {
		kills, grants = 60, 100
	}
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			log := campaign(t, n, redlock.NewFenced, kills, grants)
			if len(log) < kills*grants {
				t.Errorf("%d grants under %d kills; want %d", len(log), kills, kills*grants)
			}
			if found := history.Inversions(log); len(found) > 0 {
				t.Errorf("%d inversions, the first: %v", len(found), found[0])
			}
		})
	}
}

// TestTheGreatestOfAMajorityFallsUnderKillsAndRandomExpiry shows that the campaign can find a
// violation.
func TestTheGreatestOfAMajorityFallsUnderKillsAndRandomExpiry(t *testing.T) {
	log := campaign(t, 5, greatest, 10, 100)
	found := history.Inversions(log)
	t.Logf("%d inversions", len(found))
	if len(found) == 0 {
		t.Error("no inversions")
	}
}

// campaign lets takers log the number of every grant. Meanwhile servers that sync every write are
// killed, one at a time, and keys vanish from single servers as if they had expired. There are as
// many grants as grants says before each kill, and as many again by the other servers before the
// killed one is back.
func campaign(t *testing.T, n int, build build, kills, grants int) []history.Grant {
	t.Helper()
	const takers, keys, brief = 6, 3, 100 * time.Millisecond // brief: how long a key stays locked that nobody releases
	servers := redistest.StartN(t, n, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	l := reach(quick).quorum(t, servers, build)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	all.Go(func() { vanish(ctx, servers, keys) })

	var made atomic.Int64
	var failed atomic.Pointer[error] // the last error of an attempt
	began, logs := time.Now(), make([][]history.Grant, takers)
	for i := range takers {
		all.Go(func() {
			for ctx.Err() == nil {
				g := history.Grant{Key: fmt.Sprint("key ", rand.N(keys)), Who: fmt.Sprint("taker ", i), Asked: int64(time.Since(began))}
				lease, err := l.Acquire(ctx, contract.Request{Key: g.Key, Token: contract.NewToken(), TTL: brief})
				switch {
				case err != nil && !errors.Is(err, locker.ErrHeld):
					failed.Store(&err)
				case err == nil:
					g.Answered, g.Fence = int64(time.Since(began)), lease.Fence
					logs[i] = append(logs[i], g)
					made.Add(1)
					if rand.N(8) > 0 {
						_ = l.Release(ctx, lease) // too many servers may be gone by now
					}
				}
				pause(ctx, rand.N(3*time.Millisecond))
			}
		})
	}
	more := func() {
		t.Helper()
		until := made.Load() + int64(grants+1)/2
		defer func() {
			if err := failed.Load(); err != nil && t.Failed() {
				t.Log("the last failure:", *err)
			}
		}()
		await(t, "grants", func() bool { return made.Load() >= until })
	}
	for range kills {
		more()
		s := servers[rand.N(n)]
		s.Kill()
		more()
		s.Restart()
	}
	stop()
	all.Wait()
	var log []history.Grant
	for _, l := range logs {
		log = append(log, l...)
	}
	t.Logf("%d servers: %d grants under %d kills in %v", n, len(log), kills, time.Since(began).Round(time.Millisecond))
	return log
}

// vanish deletes keys, each on a random server.
func vanish(ctx context.Context, servers []*redistest.Server, keys int) {
	clients := make([]*redis.Client, len(servers))
	for i, s := range servers {
		clients[i] = redis.NewClient(quickly(s))
		defer clients[i].Close()
	}
	for ctx.Err() == nil {
		clients[rand.N(len(clients))].Del(ctx, fmt.Sprint("key ", rand.N(keys))) // the server may be down
		pause(ctx, rand.N(2*time.Millisecond))
	}
}

// A mutant: the number is the greatest of the first quorum, and nodes that are behind stay behind.
func TestTheGreatestCounterOfAMajorityIsNotAFencingNumber(t *testing.T) {
	for name, c := range map[string]struct {
		build build
		order bool
	}{"greatest": {greatest, false}, "fenced": {redlock.NewFenced, true}} {
		for _, q := range quorums {
			t.Run(fmt.Sprintf("%s %d of %d", name, q.w, q.n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if found := history.Inversions(changingQuorums(t, q.n, q.w, c.build)); c.order != (len(found) == 0) {
						t.Error(found)
					}
				})
			})
		}
	}
}

func greatest(stores []backends.FencedStore, opts ...redlock.Option) (locker.Locker, error) {
	lying := make([]backends.FencedStore, len(stores))
	for i, s := range stores {
		lying[i] = raisedInVain{s}
	}
	return redlock.NewFenced(lying, opts...)
}

type raisedInVain struct{ backends.FencedStore }

func (raisedInVain) RaiseFence(context.Context, string, string, uint64) (bool, error) {
	return true, nil
}

// changingQuorums logs grants made by other nodes each time.
func changingQuorums(t *testing.T, n, w int, build build) (log []history.Grant) {
	stores, faults := make([]backends.FencedStore, n), make([]*backendtest.Faults, n)
	for i := range stores {
		faults[i] = new(backendtest.Faults)
		stores[i] = faults[i].Fenced(memory.New())
	}
	l := quorumOver(t, stores, build, redlock.WithQuorum(w))
	began := time.Now()
	for round := range 20 {
		for i := range n - w {
			faults[(round+i)%n].Set(backendtest.All, backendtest.Fail)
		}
		g := history.Grant{Key: "k", Asked: int64(time.Since(began))}
		lease := mustAcquire(t, l, request())
		g.Answered, g.Fence = int64(time.Since(began)), lease.Fence
		log = append(log, g)
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		for _, f := range faults {
			f.Clear()
		}
		time.Sleep(time.Minute) // the values left by failed attempts are gone
	}
	return log
}
