package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// sequential is case (a): one goroutine takes a free lock and gives it back, again and again, with
// a ctx that can't end and with one of its own for each pair. All contenders are open at once and
// take turns of 20 pairs.
func sequential(b *bench) (*report, error) {
	all := slices.Concat([]contender{rawGoredis, again(rawGoredis), rawRueidis}, lockstepOnOne, peersOnFree,
		eachPerCall(lockstepOnOne...), eachPerCall(named(peersOnFree, "redislock", "redsync")...))
	metrics := []metric{{"p50, µs", 1, false}, {"p99, µs", 0, false}}
	tb := newTable("Lock and Unlock of a free lock, one client", rawGoredis.name, metrics, all...)
	if err := b.inTurns(tb, place{addrs: b.addrs(1), ttl: ttl}); err != nil {
		return nil, err
	}
	r := &report{tables: []*table{tb}, charts: []chart{{"sequential", tb, 0}}}
	for _, ctx := range []string{"", perCall} {
		through := tb.bestPeerThrough(0, "redislock", "redsync", "redislock"+perCall, "redsync"+perCall)
		r.musts = append(r.musts,
			atMost("p50"+ctx, tb.median(plain+ctx, 0)/tb.median(rawGoredis.name, 0), 1.10, 1.03, "× raw go-redis"),
			atMost("p50"+ctx, tb.median(plain+ctx, 0)/through, 1, 1, "× best peer through go-redis"),
			atMost("p50"+ctx, tb.median(plain+ctx, 0)/tb.bestPeer(0), 1, 1, "× best peer"),
			atMost("p50 over rueidis"+ctx, tb.median(overRueidis+ctx, 0)/tb.median(rawRueidis.name, 0), 1.10, 1.03, "× raw rueidis"),
			atMost("p50 over rueidis"+ctx, tb.median(overRueidis+ctx, 0)/tb.bestPeer(0), 1, 1, "× best peer"),
		)
	}
	return r, nil
}

const atATime = 20

// inTurns measures pairs one after the other.
func (b *bench) inTurns(tb *table, p place) error {
	type runner struct {
		*row
		*turn
		*locks
		pairs int
		times []time.Duration
	}
	var runners []*runner
	for _, r := range tb.rows {
		t := &turn{bench: b, contender: r.contender, key: fmt.Sprintf("bench:%d", b.keys.Add(1))}
		l, err := t.open(p)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		defer t.end()
		runners = append(runners, &runner{row: r, turn: t, locks: l})
	}
	tb.repetitions = b.repeat
	for rep := range b.repeat {
		b.progress("%s: repetition %d of %d", tb.title, rep+1, b.repeat)
		for _, r := range runners {
			r.times = nil
		}
		warm := b.rounds / 10
		for done := 0; done < warm+b.rounds; done += atATime {
			for _, i := range rand.Perm(len(runners)) {
				r := runners[i]
				if len(r.broke) > 0 {
					continue
				}
				first := r.pairs
				r.pairs += atATime
				times, err := within(b.patience(), func() ([]time.Duration, error) { return r.some(r.key, first, atATime) })
				switch {
				case err != nil && !errors.Is(err, errSlow) && r.stray(err):
					r.row.strays = append(r.row.strays, err)
				case err != nil:
					r.broke = append(r.broke, err)
				case done >= warm:
					r.times = append(r.times, times...)
				}
			}
		}
		for _, r := range runners {
			if len(r.broke) == 0 && len(r.times) > 0 {
				slices.Sort(r.times)
				r.note([]float64{lab.Micros(r.times, 50), lab.Micros(r.times, 99)})
			}
		}
	}
	b.progress("")
	return nil
}

// some takes n free locks one after the other, each with a key of its own: what a quorum was released without is still on its
// way when the next begins.
func (l *locks) some(key string, first, n int) ([]time.Duration, error) {
	ctx := context.Background()
	times := make([]time.Duration, n)
	for i := range n {
		key := fmt.Sprintf("%s:%d", key, first+i)
		start := time.Now()
		unlock, err := l.lock(ctx, key)
		if err == nil {
			err = unlock(ctx)
		}
		if err != nil {
			return nil, err
		}
		times[i] = time.Since(start)
	}
	return times, nil
}
