package campaign

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/history"
	"github.com/lockstep-go/lockstep/proof/matrix"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// TestWaitersWhoMissAWake asks how long a waiter sleeps while the lock is free if the wake does not
// reach it. Two Clients hold a lock in turn. The one that releases does not ask again until the
// other has it, so no other wakes help.
//
//   - In one half, subscriptions are never answered. The waiter gets the lock by its own looks,
//     each after a quarter of the time that it has waited, at least 250 ms.
//   - In the other half, waiters never look by themselves, and their connection is down at the
//     moment of the release. The waiter gets the lock since it looks when it has subscribed again.
//
// It prints how long that took. It asserts that each waiter gets the lock, that no two hold it, and
// that no gap is of the order of the lease.
//
//	go test ./proof/campaign -run TestWaitersWhoMissAWake -v
//
// To change it: each pair has a lock of its own.
func TestWaitersWhoMissAWake(t *testing.T) {
	rounds := 10
	if full.Size() {
		rounds = 100
	}
	for _, half := range []deafness{
		{name: "they look by themselves", pairs: 24, first: loseSubscriptions, before: func(*testing.T, *redistest.Server) {}},
		{name: "their subscription comes back", pairs: 8, backoff: never, before: killSubscriptions},
	} {
		t.Run(half.name, func(t *testing.T) { half.run(t, rounds) })
	}
}

// never is a Backoff that is longer than the test.
func never(int, float64) time.Duration { return time.Hour }

// A deafness is why waiters miss the wake of a release.
type deafness struct {
	name    string
	pairs   int
	backoff locker.Backoff
	first   func(*redistest.Proxy)
	before  func(*testing.T, *redistest.Server) // a release
}

func (d deafness) run(t *testing.T, rounds int) {
	atLast := nothingRunsOn(t)
	server := redistest.Start(t)
	opts := []locker.ClientOption{locker.WithTTL(theQueuesTTL)}
	if d.backoff != nil {
		opts = append(opts, locker.WithBackoff(d.backoff))
	}
	logs := make([]holdLog, d.pairs)
	var proxies []*redistest.Proxy
	var connections []connection
	var all sync.WaitGroup
	for i := range logs {
		var clients [2]*locker.Client
		var between [2]*redistest.Proxy
		for side := range clients {
			p := redistest.NewProxy(t, server.Addr())
			if d.first != nil {
				d.first(p)
			}
			cn := libraries[(i+side)%len(libraries)].dial(t, p.Addr())
			proxies, connections = append(proxies, p), append(connections, cn)
			between[side], clients[side] = p, locker.New(single.New(cn.store), opts...)
		}
		key, before := fmt.Sprint("pair ", i), func() { d.before(t, server) }
		all.Go(func() { passToAndFro(t, key, clients, between, rounds, before, &logs[i]) })
	}
	all.Wait()
	atLast() // with all clients still open
	for _, cn := range connections {
		cn.close()
	}
	noConnectionStays(t, proxies)

	var together holdLog
	var holds, violations int
	for i := range logs {
		holds += len(logs[i].holds)
		together.gaps = append(together.gaps, logs[i].gaps...)
		if overlaps := history.Overlaps(logs[i].holds); len(overlaps) > 0 {
			violations += len(overlaps)
			t.Errorf("%d overlaps, the first: %v", len(overlaps), overlaps[0])
		}
	}
	if longest := together.longestGap(); longest > longestGap {
		t.Errorf("the lock was free for %v, and nobody took it", longest)
	}
	t.Log(&together)
	matrix.Cell{
		Strategy: "single", Fault: "wake-ups lost", Where: "redis-server", Trials: holds, Violations: violations,
		Command: command("TestWaitersWhoMissAWake"),
	}.Report(t)
}

// passToAndFro lets one side release only when the other has asked and waits.
func passToAndFro(t *testing.T, key string, clients [2]*locker.Client, proxies [2]*redistest.Proxy, rounds int, before func(), log *holdLog) {
	held, err := clients[0].Lock(t.Context(), key, locker.WithWait(patience))
	if err != nil {
		t.Error(err)
		return
	}
	for round := range rounds {
		next := (round + 1) % 2
		asked := attempts(proxies[next])
		granted := make(chan *locker.Lock)
		go func() {
			defer close(granted)
			l, err := clients[next].Lock(t.Context(), key, locker.WithWait(patience))
			for begun := time.Now(); err != nil; l, err = clients[next].Lock(t.Context(), key, locker.WithWait(patience)) {
				// otherwise a busy machine took too long to answer
				if errors.Is(err, locker.ErrHeld) || time.Since(begun) > patience {
					t.Errorf("%s: %v", key, err)
					return
				}
			}
			granted <- l
		}()
		for deadline := time.Now().Add(patience); attempts(proxies[next]) == asked && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // until it waits
		}
		before()
		log.hold(t, held, fmt.Sprint("side ", 1-next))
		if held = <-granted; held == nil {
			return
		}
	}
	log.hold(t, held, "the last")
}

// attempts returns the number of requests for a lock or for a position in its queue.
func attempts(p *redistest.Proxy) int { return p.Count("SET") + p.Count("EVALSHA") }
