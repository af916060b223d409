package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/redis/go-redis/v9"
)

// distance is case (h): cases (a), (b) and (d) with a server far away. Each client reaches it
// through a relay that delays every byte by 12 ms, in both directions. CPU time matters little
// there. The number of waits for an answer decides, so times are given in round trips.
func distance(b *bench) (*report, error) {
	late := b.time(12*time.Millisecond, time.Millisecond)
	relay, err := lab.Delay(b.servers[0].Addr, late)
	if err != nil {
		return nil, err
	}
	defer relay.Close()
	far := place{addrs: []string{relay.Addr}, ttl: ttl}

	inOrder, err := b.farInOrder(far)
	if err != nil {
		return nil, err
	}
	atOnce, err := b.farAtOnce(far)
	if err != nil {
		return nil, err
	}
	handedOver, err := b.farHandOver(far, 2*late)
	if err != nil {
		return nil, err
	}
	r := &report{
		tables: []*table{inOrder, atOnce, handedOver},
		charts: []chart{{"distance-throughput", atOnce, 0}, {"distance-handover", handedOver, 0}},
	}
	for _, c := range judged {
		r.musts = append(r.musts,
			atMost("one after the other, p50"+c.says, inOrder.median(c.name, 1), 2.05, 2.05, "round trips"),
			atLeast("64 goroutines, pairs/s"+c.says, atOnce.median(c.name, 1), 0.97, 0.97, "× 64 in 2 round trips"),
			atMost("hand-over, p50"+c.says, handedOver.median(c.name, 1), 2.05, 2.05, "round trips"),
		)
	}
	return r, nil
}

// farInOrder is the first part: one goroutine, one pair after the other.
func (b *bench) farInOrder(far place) (*table, error) {
	tb := newTable("24 ms away: Lock and Unlock of a free lock, one client", "",
		[]metric{{"p50, ms", 2, false}, {"round trips", 3, false}, ping}, farAndFree()...)
	return tb, b.everybody(tb, b.repeat, b.patience(), func(t *turn) ([]float64, error) {
		trip, err := roundTrip(far)
		if err != nil {
			return nil, err
		}
		l, err := t.open(far)
		if err != nil {
			return nil, err
		}
		// The first pairs open a connection and load scripts.
		if _, err := t.forAWhile(l, t.key+":warm", 3, t.turn); err != nil {
			return nil, err
		}
		times, err := t.forAWhile(l, t.key, b.size(60, 3), b.time(10*time.Second, 100*time.Millisecond))
		if err != nil {
			return nil, err
		}
		p50 := lab.Quantile(times, 50)
		return []float64{p50, p50 / trip, trip}, nil
	})
}

// farAtOnce is the second part: 64 goroutines with a key each. If they wait only for the server,
// they make 64 pairs in two round trips.
func (b *bench) farAtOnce(far place) (*table, error) {
	tb := newTable("24 ms away: 64 goroutines, distinct keys, one client", "",
		[]metric{{"pairs/s", 0, true}, {"× 64 in 2 round trips", 3, true}, ping},
		slices.Concat(farAndFree(), eachPool64(rawGoredis), eachPool64(named(peersOnFree, "redislock", "redsync")...))...)
	return tb, b.everybody(tb, b.repeat, 3*b.turn+b.patience(), func(t *turn) ([]float64, error) {
		trip, err := roundTrip(far)
		if err != nil {
			return nil, err
		}
		l, err := t.open(far)
		if err != nil {
			return nil, err
		}
		rate, err := t.steady(l)
		if err != nil {
			return nil, err
		}
		most := many / (2 * trip / 1000)
		return []float64{rate, rate / most, trip}, nil
	})
}

// steady returns the pairs per second of 64 goroutines. A pair takes so long that each goroutine
// makes only a few, and all may end at the same time. So each goroutine counts whole pairs and
// their time.
func (t *turn) steady(l *locks) (float64, error) {
	begin := time.Now().Add(t.turn / 2) // until then it warms up
	end := begin.Add(2 * t.turn)
	var mu sync.Mutex
	var rate float64
	var failed error
	for i := range many {
		key := fmt.Sprintf("%s:%d", t.key, i)
		t.working.Go(func() {
			round := 0
			pairsUntil := func(end time.Time) (pairs int, err error) {
				for ; err == nil && time.Now().Before(end); round++ {
					if _, err = l.some(key, round, 1); err == nil {
						pairs++
					} else if t.stray(err) {
						err = nil
					}
				}
				return pairs, err
			}
			_, err := pairsUntil(begin)
			start, pairs := time.Now(), 0
			if err == nil {
				pairs, err = pairsUntil(end)
			}
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			} else if pairs > 0 {
				rate += float64(pairs) / took.Seconds()
			}
		})
	}
	t.working.Wait()
	return rate, failed
}

// farHandOver is the third part: two clients pass one key to each other, and one of them waits. A
// hold lasts five round trips, so that the other client is in the queue.
func (b *bench) farHandOver(far place, trip time.Duration) (*table, error) {
	all := slices.Concat([]contender{bareWake, again(bareWake), popWake}, lockstepOnOne,
		named(peersThatWait, append(slices.Clone(tunedPeers), rueidislockTuned.name)...), eachPerCall(lockstepOnOne...))
	tb := newTable("24 ms away: 1 waiting, a client each", "",
		[]metric{{"p50, ms", 2, false}, {"round trips", 3, false}, {"commands sent per acquisition", 1, false}, ping}, all...)
	return tb, b.everybody(tb, b.half(), 2*b.patience(), func(t *turn) ([]float64, error) {
		measured, err := roundTrip(far)
		if err != nil {
			return nil, err
		}
		h := handOvers{place: far, hold: 5 * trip, enough: b.size(20, 2), limit: t.time(10*time.Second, time.Second)}
		h.waiters, h.sent = 1, &t.sent
		figures, err := t.passOn(h)
		if err != nil {
			return nil, err
		}
		p50, sent := figures[0], figures[2]
		return []float64{p50, p50 / measured, sent, measured}, nil
	})
}

// ping is the round trip in a turn whose times are given in round trips.
var ping = metric{"a PING, ms", 2, false}

// farAndFree are the contenders on keys that no other contender wants.
func farAndFree() []contender {
	return slices.Concat([]contender{rawGoredis, again(rawGoredis), rawRueidis}, lockstepOnOne,
		named(peersOnFree, "redislock", "redsync"), eachPerCall(lockstepOnOne...))
}

// roundTrip is the median of some PINGs, in milliseconds. Each turn measures it again, since the
// load of the machine changes it.
func roundTrip(far place) (float64, error) {
	ctx := context.Background()
	c := far.goredis(0)
	defer closing([]*redis.Client{c})()
	times := make([]time.Duration, 15)
	for i := -1; i < len(times); i++ { // the first one opens the connection
		start := time.Now()
		if err := c.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		if i >= 0 {
			times[i] = time.Since(start)
		}
	}
	return lab.Quantile(times, 50), nil
}
