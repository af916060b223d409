package laboratory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/locker"
)

// A Size is how much is measured: so many pairs of Lock and Unlock, or as many as fit in the limit, but at
// least a fifth of them.
type Size struct {
	Pairs, HandOvers int
	Limit            time.Duration
}

// FullSize is the size of a run whose timings count.
var FullSize = Size{Pairs: 500, HandOvers: 11, Limit: time.Second}

// A Speed is the cost of a lock that nobody else wants, and of passing a lock on to a waiter. The times are
// zero where Report.NoTimes says why.
type Speed struct {
	Commands int // of Lock and Unlock, to all servers
	Trips    int // that follow one another: servers are asked at once, so those of the server that was asked most often
	P50, P99 time.Duration
	HandOver time.Duration // from Unlock to the Lock of a waiter on another Client; the median
}

// measure takes turns with nobody: other measurements and scenarios wait meanwhile.
func measure(ctx context.Context, p *park, r Row, servers []server, n Size) (Speed, error) {
	a, err := newActor("Alice", r, servers)
	if err != nil {
		return Speed{}, err
	}
	defer a.close()
	b, err := newActor("Bob", r, servers)
	if err != nil {
		return Speed{}, err
	}
	defer b.close()
	key := p.prefix + r.Name + "/" + SpeedColumn
	var s Speed
	// The first ones open connections and load scripts. And on a busy machine the last command of a quorum may
	// come when all seems to be sent: it counts if it is so twice in a row.
	for n, before := 0, [2]int{}; n < 3 || before != [2]int{s.Commands, s.Trips}; n++ {
		before = [2]int{s.Commands, s.Trips}
		if s.Commands, s.Trips, err = countOne(ctx, a, key); err != nil {
			return Speed{}, err
		}
		if n == 20 {
			return Speed{}, fmt.Errorf("%s: a lock sends %d commands, and then %d", r.Name, before[0], s.Commands)
		}
	}
	if p.noTimes != "" {
		return s, nil
	}
	if s.P50, s.P99, err = timePairs(ctx, a, key, n); err != nil {
		return Speed{}, err
	}
	s.HandOver, err = timeHandOvers(ctx, a, b, key, n.HandOvers)
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

func timePairs(ctx context.Context, a *actor, key string, n Size) (p50, p99 time.Duration, err error) {
	var took []time.Duration
	for start := time.Now(); len(took) < n.Pairs && (len(took) < n.Pairs/5 || time.Since(start) < n.Limit); {
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
