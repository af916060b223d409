package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// fiveNodes is case (e): cases (a) and (b) on five redis-servers with a quorum of three. In the
// last part one server is stopped (SIGSTOP): its connections stay open, and it answers nothing.
func fiveNodes(b *bench) (*report, error) {
	if err := b.start(nodes); err != nil {
		return nil, err
	}
	here := place{addrs: b.addrs(nodes), ttl: ttl}
	all := slices.Concat([]contender{rawQuorum, again(rawQuorum)}, lockstepOnFive, peersOnFive,
		eachPerCall(lockstepOnFive...), eachPerCall(named(peersOnFive, "redsync", "redsync, fail-fast")...))
	metrics := []metric{{"p50, µs", 0, false}, {"p99, µs", 0, false}}
	inOrder := newTable("Five nodes: Lock and Unlock of a free lock", rawQuorum.name, metrics, all...)
	if err := b.inTurns(inOrder, here, nil); err != nil {
		return nil, err
	}
	atOnce := newTable("Five nodes: 64 goroutines, distinct keys", rawQuorum.name, []metric{{"pairs/s", 0, true}},
		slices.Concat(all, eachPool64(rawQuorum), eachPool64(named(lockstepOnFive, ofFive)...),
			eachPool64(named(peersOnFive, "redsync", "redsync, fail-fast")...))...)
	err := b.everybody(atOnce, b.repeat, b.turn+b.patience(), func(t *turn) ([]float64, error) {
		l, err := t.open(here)
		if err != nil {
			return nil, err
		}
		rate, err := t.flatOut(l, t.key)
		return []float64{rate}, err
	})
	if err != nil {
		return nil, err
	}
	hung := newTable("One of five nodes hangs", "", []metric{
		{"p50, ms", 2, false}, {"× healthy", 2, false}, {"longest, ms", 0, false}, {"64 goroutines: pairs/s", 0, true}, {"× healthy", 2, true},
	}, slices.Concat(all, []contender{redsyncInTime})...)
	err = b.everybody(hung, b.half(), 2*b.patience(), func(t *turn) ([]float64, error) { return t.withOneHung(here) })
	if err != nil {
		return nil, err
	}
	r := &report{
		tables:    []*table{inOrder, atOnce, hung},
		charts:    []chart{{"five-sequential", inOrder, 0}, {"five-throughput", atOnce, 0}, {"five-one-hung", hung, 0}},
		headlines: []headline{{"five nodes, 64 goroutines: pairs/s", atOnce.median(ofFive, 0) / atOnce.bestPeer(0), "× the best of the others"}},
	}
	raw := inOrder.median(rawQuorum.name, 0)
	for _, c := range []struct{ name, says, redsync string }{
		{ofFive, "", "redsync, fail-fast"}, {ofFive + perCall, perCall, "redsync, fail-fast"},
		{ofFiveRueidis, " over rueidis", "redsync over rueidis, fail-fast"},
		{ofFiveRueidis + perCall, " over rueidis" + perCall, "redsync over rueidis, fail-fast"},
	} {
		r.musts = append(r.musts,
			atMost("one after the other, p50"+c.says, inOrder.median(c.name, 0)/raw, 1.10, 1, "× raw, done at 3 of 5"),
			atMost("one after the other, p50"+c.says, inOrder.median(c.name, 0)/inOrder.median(c.redsync, 0), 1, 1, "× "+c.redsync),
			atLeast("64 goroutines, pairs/s"+c.says, atOnce.median(c.name, 0)/atOnce.bestPeer(0), 1.8, 2, "× best peer"),
			atMost("one node hung, p50"+c.says, hung.median(c.name, 1), 2, 2, "× healthy"),
		)
	}
	r.musts = append(r.musts, atLeast("64 goroutines, pairs/s"+pool64, atOnce.median(ofFive+pool64, 0)/atOnce.bestPeer(0), 1.8, 2, "× best peer"))
	return r, nil
}

const nodes = 5

// withOneHung measures with five servers, and then with four.
func (t *turn) withOneHung(here place) ([]float64, error) {
	l, err := t.open(here)
	if err != nil {
		return nil, err
	}
	pairs, patience := t.size(300, 10), t.time(3*time.Second, 100*time.Millisecond)
	healthy, err := t.forAWhile(l, t.key+":alone:healthy", pairs, patience)
	if err != nil {
		return nil, err
	}
	healthyRate, err := t.flatOut(l, t.key+":healthy")
	if err != nil {
		return nil, err
	}
	last := t.servers[nodes-1]
	if err := last.Freeze(); err != nil {
		return nil, err
	}
	if !t.after(func() { _ = last.Thaw() }) { // first at the end: clients that close may wait for it
		_ = last.Thaw()
	}
	hung, err := t.forAWhile(l, t.key+":alone:hung", pairs, patience)
	if err != nil {
		return nil, err
	}
	p50 := lab.Quantile(hung, 50)
	figures := []float64{p50, p50 / lab.Quantile(healthy, 50), lab.Quantile(hung, 100), math.NaN(), math.NaN()}
	if p50 > 1000 {
		return figures, nil // 64 at once would take a second each, and show nothing more
	}
	rate, err := t.flatOut(l, t.key+":hung")
	if err != nil {
		return nil, fmt.Errorf("64 goroutines: %w", err)
	}
	figures[3], figures[4] = rate, rate/healthyRate
	return figures, nil
}

// forAWhile takes n locks one after the other. It stops early after a while, but not before the
// first.
func (t *turn) forAWhile(l *locks, key string, n int, while time.Duration) (times []time.Duration, err error) {
	failed := 0
	for start := time.Now(); len(times) < n && (len(times) == 0 || time.Since(start) < while); {
		one, err := l.some(key, len(times)+failed, 1)
		if err != nil && t.stray(err) {
			failed++
			continue
		} else if err != nil {
			return nil, err
		}
		times = append(times, one...)
	}
	return times, nil
}
