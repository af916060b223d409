package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// contention is case (c): 16 goroutines take one lock and release it at once, again and again, in
// one client and in 16. The figure is the number of owner changes. A goroutine that takes the lock
// again before the others know that it is free serves only itself.
func contention(b *bench) (*report, error) {
	metrics := []metric{
		{"owner changes/s", 0, true}, {"acquisitions/s", 0, true}, {"least / most of a goroutine", 2, true},
		{"commands sent per acquisition", 1, false}, {"executed", 1, false}, {"server CPU, µs", 0, false},
	}
	one := newTable("16 goroutines, one key, one client", inProcess.name, metrics,
		slices.Concat([]contender{inProcess, again(inProcess)}, lockstepOnOne, lockstepOneClient, peersThatWait,
			eachPerCall(slices.Concat(lockstepOnOne, lockstepOneClient)...), eachPerCall(named(peersThatWait, tunedPeers...)...))...)
	each := newTable("16 goroutines, one key, a client each", popWake.name, metrics,
		slices.Concat([]contender{popWake, again(popWake), bareWake}, lockstepOnOne, peersThatWait,
			eachPerCall(lockstepOnOne...), eachPerCall(named(peersThatWait, tunedPeers...)...))...)
	for _, c := range []struct {
		table   *table
		clients int
	}{{one, 1}, {each, rivals}} {
		err := b.everybody(c.table, b.repeat, b.turn+b.patience(), func(t *turn) ([]float64, error) { return t.contend(c.clients) })
		if err != nil {
			return nil, err
		}
	}
	r := &report{
		tables: []*table{one, each},
		charts: []chart{{"contention-one-client", one, 0}, {"contention-16-clients", each, 0}, {"contention-commands", each, 3}},
		headlines: []headline{
			{"16 clients that want one key: owner changes/s", each.median(plain, 0) / each.bestPeer(0), "× the best of the others"},
			{"16 clients that want one key: commands sent for each", each.median(plain, 3), ""},
		},
	}
	for _, c := range judged {
		r.musts = append(r.musts,
			atLeast("one client, owner changes/s"+c.says, one.median(c.name, 0)/one.median(inProcess.name, 0), 0.9, 1, "× in-process FIFO"),
			atLeast("16 clients, owner changes/s"+c.says, each.median(c.name, 0)/each.bestPeer(0), 1.4, 2, "× best peer"),
			atMost("16 clients, commands sent per acquisition"+c.says, each.median(c.name, 3), 3.5, 3, ""),
		)
	}
	for _, ctx := range []string{"", perCall} {
		r.musts = append(r.musts, atLeast("WithMaxHandovers(64), owner changes/s"+ctx,
			one.median(handing+ctx, 0)/one.median(inProcess.name, 0), 20, 40, "× in-process FIFO"))
	}
	return r, nil
}

// judged are the rows of Lockstep with the same marks.
var judged = []struct{ name, says string }{
	{plain, ""}, {plain + perCall, perCall}, {overRueidis, " over rueidis"}, {overRueidis + perCall, " over rueidis" + perCall},
}

var tunedPeers = []string{"redislock, tuned", "redsync, tuned"}

const rivals = 16

var errTwo = errors.New("two held it at once")

// contend lets the rivals share this number of clients.
func (t *turn) contend(clients int) ([]float64, error) {
	var all []*locks
	for range clients {
		l, err := t.open(place{addrs: t.addrs(1), ttl: ttl, waiters: rivals - 1, sent: &t.sent})
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	var arena arena
	for i := range rivals {
		t.working.Go(func() { arena.fight(i, all[i%clients], t.key) })
	}
	time.Sleep(t.turn / 4)
	before, err := t.counters()
	if err != nil {
		return nil, err
	}
	arena.counting.Store(true)
	time.Sleep(t.turn)
	arena.counting.Store(false)
	after, err := t.counters()
	if err != nil {
		return nil, err
	}
	arena.over.Store(true)
	t.working.Wait()
	if err := arena.err(); err != nil {
		return nil, err
	}
	least, most, total := int64(math.MaxInt64), int64(0), int64(0)
	for i := range arena.holds {
		n := arena.holds[i].Load()
		least, most, total = min(least, n), max(most, n), total+n
	}
	used, took := after.since(before), after.at.Sub(before.at).Seconds()
	return []float64{
		float64(arena.changes.Load()) / took, float64(total) / took, float64(least) / float64(most),
		per(used.sent, int(total)), per(used.executed, int(total)), per(used.cpu, int(total)) / 1000,
	}, nil
}

// arena counts the holds of the rivals, and notices if two hold the lock at once.
type arena struct {
	over, counting atomic.Bool
	inside         atomic.Int32
	overlaps       atomic.Int64
	changes        atomic.Int64
	last           atomic.Int64 // the last holder, counted from 1
	holds          [rivals]atomic.Int64

	mu     sync.Mutex
	failed error
}

func (a *arena) fight(me int, l *locks, key string) {
	ctx := context.Background()
	for !a.over.Load() {
		unlock, err := l.lock(ctx, key)
		if err == nil {
			if a.inside.Add(1) != 1 {
				a.overlaps.Add(1)
			}
			change := a.last.Swap(int64(me)+1) != int64(me)+1
			if a.counting.Load() {
				a.holds[me].Add(1)
				if change {
					a.changes.Add(1)
				}
			}
			a.inside.Add(-1)
			err = unlock(ctx)
		}
		if err != nil {
			a.mu.Lock()
			a.failed = errors.Join(a.failed, err)
			a.mu.Unlock()
			return
		}
	}
}

func (a *arena) err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.overlaps.Load(); n > 0 {
		return fmt.Errorf("%w, %d times", errTwo, n)
	}
	return a.failed
}
