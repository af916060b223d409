package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// A size is how much is measured: so many, or as many as fit in the time if that is shorter, but a fifth of them at least.
type size struct {
	pairs, handOvers int
	limit            time.Duration
}

var fullSize = size{pairs: 500, handOvers: 11, limit: time.Second}

// A speed is what a lock costs that nobody else wants, and how soon the next one has a lock that someone waits for.
type speed struct {
	commands int // of Lock and Unlock, to all servers
	trips    int // that follow one another: servers are asked at once, so those of the server that was asked most often
	p50, p99 time.Duration
	handOver time.Duration // from Unlock to the Lock of a waiter on another Client; the median
}

// measure takes turns with nobody: other measurements and scenarios wait meanwhile.
func measure(ctx context.Context, p *park, r row, servers []server, n size) (speed, error) {
	a, err := newActor("Alice", r, servers)
	if err != nil {
		return speed{}, err
	}
	defer a.close()
	b, err := newActor("Bob", r, servers)
	if err != nil {
		return speed{}, err
	}
	defer b.close()
	key := p.prefix + r.name + "/" + speedColumn
	var s speed
	for range 3 { // the first ones open connections and load scripts
		if s.commands, s.trips, err = countOne(ctx, a, key); err != nil {
			return speed{}, err
		}
	}
	if s.p50, s.p99, err = timePairs(ctx, a, key, n); err != nil {
		return speed{}, err
	}
	s.handOver, err = timeHandOvers(ctx, a, b, key, n.handOvers)
	return s, err
}

// countOne counts what one Lock and Unlock send. It lets late answers of a quorum come before it goes on.
func countOne(ctx context.Context, a *actor, key string) (commands, trips int, err error) {
	a.wire.reset()
	l, err := a.locks.Lock(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	a.wire.settle()
	if err := l.Unlock(ctx); err != nil {
		return 0, 0, err
	}
	a.wire.settle()
	commands, trips = a.wire.count()
	return commands, trips, nil
}

func timePairs(ctx context.Context, a *actor, key string, n size) (p50, p99 time.Duration, err error) {
	var took []time.Duration
	for start := time.Now(); len(took) < n.pairs && (len(took) < n.pairs/5 || time.Since(start) < n.limit); {
		began := time.Now()
		l, err := a.locks.Lock(ctx, key)
		if err != nil {
			return 0, 0, err
		}
		if err := l.Unlock(ctx); err != nil {
			return 0, 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}

// timeHandOvers lets one wait for the other, who unlocks after a while.
func timeHandOvers(ctx context.Context, a, b *actor, key string, n int) (time.Duration, error) {
	const while = 40 * time.Millisecond
	type granted struct {
		lock *locker.Lock
		at   time.Time
		err  error
	}
	took := make([]time.Duration, n)
	for i := range took {
		l, err := a.locks.Lock(ctx, key)
		if err != nil {
			return 0, err
		}
		next := make(chan granted, 1)
		go func() {
			l, err := b.locks.Lock(ctx, key)
			next <- granted{l, time.Now(), err}
		}()
		if err := pause(ctx, while); err != nil {
			return 0, err
		}
		gives := time.Now()
		if err := l.Unlock(ctx); err != nil {
			return 0, err
		}
		g := <-next
		if g.err != nil {
			return 0, fmt.Errorf("a waiter: %w", g.err)
		}
		took[i] = g.at.Sub(gives)
		if err := g.lock.Unlock(ctx); err != nil {
			return 0, err
		}
	}
	slices.Sort(took)
	return took[n/2], nil
}
