package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// sequential is case (a): one goroutine takes and releases a free lock, again and again. It does so
// with a ctx that can't end, and with a new ctx for each pair. All contenders are open at once and
// take turns of 20 pairs. The CPU time of the server is measured over these turns.
func sequential(b *bench) (*report, error) {
	all := slices.Concat([]contender{rawGoredis, again(rawGoredis), rawRueidis}, lockstepOnOne, peersOnFree,
		eachPerCall(lockstepOnOne...), eachPerCall(named(peersOnFree, "redislock", "redsync")...))
	metrics := []metric{{"p50, µs", 1, false}, {"p99, µs", 0, false}, {"server CPU of a pair, µs", 1, false}}
	tb := newTable("Lock and Unlock of a free lock, one client", rawGoredis.name, metrics, all...)
	if err := b.inTurns(tb, place{addrs: b.addrs(1), ttl: ttl}, b.servers[0]); err != nil {
		return nil, err
	}
	r := &report{tables: []*table{tb}, charts: []chart{{"sequential", tb, 0}}}
	for _, ctx := range []string{"", perCall} {
		limit, aim := 1.05, 1.02
		if ctx == perCall {
			limit, aim = 1.12, 1.05
		}
		noise := tb.apart(rawGoredis.name, 0)
		through := tb.bestPeerThrough(0, "redislock", "redsync", "redislock"+perCall, "redsync"+perCall)
		r.musts = append(r.musts,
			atMost("p50"+ctx, tb.median(plain+ctx, 0)/tb.median(rawGoredis.name, 0), limit, aim, "× raw go-redis"),
			atMost("p50"+ctx, tb.median(plain+ctx, 0)/through, noise, noise, "× best peer through go-redis"),
			atMost("p50"+ctx, tb.median(plain+ctx, 0)/tb.bestPeer(0), noise, noise, "× best peer"),
			atMost("p50 over rueidis"+ctx, tb.median(overRueidis+ctx, 0)/tb.median(rawRueidis.name, 0), limit, aim, "× raw rueidis"),
			atMost("p50 over rueidis"+ctx, tb.median(overRueidis+ctx, 0)/tb.bestPeer(0), noise, noise, "× best peer"),
			atMost("server CPU of a pair"+ctx, tb.median(plain+ctx, 2)/tb.median(rawGoredis.name, 2), 1.15, 1, "× raw go-redis"),
			atMost("server CPU of a pair over rueidis"+ctx,
				tb.median(overRueidis+ctx, 2)/tb.median(rawRueidis.name, 2), 1.15, 1, "× raw rueidis"),
		)
	}
	return r, nil
}

const atATime = 20

// inTurns measures pairs one after the other. The third figure is the CPU time of server for a
// pair, unless server is nil.
func (b *bench) inTurns(tb *table, p place, server *lab.Server) error {
	type runner struct {
		*row
		*turn
		*locks
		pairs int
		times []time.Duration
		used  float64 // µs of the server's CPU, for these pairs
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
			r.times, r.used = nil, 0
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
				before := microsOf(server)
				times, err := within(b.patience(), func() ([]time.Duration, error) { return r.some(r.key, first, atATime) })
				switch {
				case err != nil && !errors.Is(err, errSlow) && r.stray(err):
					r.row.strays = append(r.row.strays, err)
				case err != nil:
					r.broke = append(r.broke, err)
				case done >= warm:
					r.times = append(r.times, times...)
					r.used += microsOf(server) - before
				}
			}
		}
		for _, r := range runners {
			if len(r.broke) == 0 && len(r.times) > 0 {
				slices.Sort(r.times)
				figures := []float64{lab.Micros(r.times, 50), lab.Micros(r.times, 99), r.used / float64(len(r.times))}
				r.note(figures[:len(tb.metrics)])
			}
		}
	}
	b.progress("")
	return nil
}

// microsOf is the CPU time of a server, in microseconds. It is NaN if server is nil, or if the
// system cannot tell.
func microsOf(server *lab.Server) float64 {
	if server == nil {
		return math.NaN()
	}
	used, err := server.CPUTime()
	if err != nil {
		return math.NaN()
	}
	return float64(used.Nanoseconds()) / 1000
}

// some takes n free locks one after the other. Each has its own key, since the last release of a
// quorum may still be under way on some nodes.
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
