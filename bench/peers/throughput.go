package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const many = 64

// throughput is case (b): 64 goroutines of one client take and release a lock each, as fast as they
// can.
func throughput(b *bench) (*report, error) {
	overGoredis := slices.Concat(named(lockstepOnOne, plain), named(peersOnFree, "redislock", "redsync"))
	all := slices.Concat([]contender{rawGoredis, again(rawGoredis), rawRueidis, pipelined}, lockstepOnOne, peersOnFree,
		eachPerCall(named(lockstepOnOne, overRueidis)...), eachPerCall(overGoredis...), eachPool64(rawGoredis), eachPool64(overGoredis...))
	tb := newTable("64 goroutines, distinct keys, one client", rawGoredis.name, []metric{{"pairs/s", 0, true}}, all...)
	err := b.everybody(tb, b.repeat, b.turn+b.patience(), func(t *turn) ([]float64, error) {
		l, err := t.open(place{addrs: t.addrs(1), ttl: ttl})
		if err != nil {
			return nil, err
		}
		rate, err := t.flatOut(l, t.key)
		return []float64{rate}, err
	})
	if err != nil {
		return nil, err
	}
	best := tb.bestPeer(0)
	r := &report{
		tables:    []*table{tb},
		charts:    []chart{{"throughput", tb, 0}},
		headlines: []headline{{"64 goroutines, a key each: pairs/s", tb.median(plain, 0) / best, "× the best of the others"}},
	}
	through := tb.bestPeerThrough(0, "redislock", "redsync", "redislock"+perCall, "redsync"+perCall, "redislock"+pool64, "redsync"+pool64)
	for _, form := range []string{"", perCall, pool64} {
		raw, limit, aim := rawGoredis.name, 1.3, 1.7
		switch form {
		case pool64:
			raw += pool64
		case perCall:
			limit, aim = 2, 2.5
		}
		r.musts = append(r.musts,
			atLeast("pairs/s"+form, tb.median(plain+form, 0)/tb.median(raw, 0), 2, 2.5, "× "+raw),
			atLeast("pairs/s"+form, tb.median(plain+form, 0)/through, 1.3, 1.7, "× best peer through go-redis"),
			atLeast("pairs/s"+form, tb.median(plain+form, 0)/best, limit, aim, "× best peer"),
		)
	}
	for _, ctx := range []string{"", perCall} {
		ofRaw, ofBest, aim := 0.85, 1.3, 1.7
		if ctx == perCall {
			ofRaw, ofBest, aim = 0.95, 2, 2.5
		}
		r.musts = append(r.musts,
			atLeast("pairs/s over rueidis"+ctx, tb.median(overRueidis+ctx, 0)/tb.median(rawRueidis.name, 0), ofRaw, 0.95, "× raw rueidis"),
			atLeast("pairs/s over rueidis"+ctx, tb.median(overRueidis+ctx, 0)/best, ofBest, aim, "× best peer"),
		)
	}
	return r, nil
}

// flatOut returns the pairs per second of 64 goroutines, on keys that begin with key.
func (t *turn) flatOut(l *locks, key string) (float64, error) {
	var pairs atomic.Int64
	var stop atomic.Bool
	var mu sync.Mutex
	var failed error
	work := func(n int, some func(round int) error) {
		for round := 0; !stop.Load(); round++ {
			if err := some(round); err != nil && t.stray(err) {
				continue
			} else if err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
				return
			}
			pairs.Add(int64(n))
		}
	}
	if l.pairs != nil {
		t.working.Go(func() {
			work(many, func(int) error { return l.pairs(context.Background(), many) })
		})
	} else {
		for i := range many {
			key := fmt.Sprintf("%s:%d", key, i)
			t.working.Go(func() {
				work(1, func(round int) error {
					_, err := l.some(key, round, 1)
					return err
				})
			})
		}
	}
	time.Sleep(t.turn / 4) // warms up
	start, before := time.Now(), pairs.Load()
	time.Sleep(t.turn)
	made, took := pairs.Load()-before, time.Since(start)
	stop.Store(true)
	t.working.Wait()
	return float64(made) / took.Seconds(), failed
}
