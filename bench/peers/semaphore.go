package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
)

// semaphores is case (i): 110 clients share 10 permits, so 100 wait. Each takes a permit, holds it
// and releases it, again and again. In the first table a permit is held for 20 ms, as if for work,
// and in the second for no time. The third table has the cost of one more permit beside many.
func semaphores(b *bench) (*report, error) {
	metrics := []metric{
		{"commands sent per permit", 1, false}, {"permits/s", 0, true}, {"executed", 1, false}, {"server CPU, µs", 0, false},
		{"least / most of a client", 2, true}, {"most at once", 0, false},
	}
	b.npm.install()
	working := newTable("A semaphore of 10, 100 waiting, each permit held for 20 ms", plain, metrics, semaphoreContenders...)
	flatOut := newTable("A semaphore of 10, 100 waiting, each permit released at once", plain, metrics, semaphoreContenders...)
	for _, c := range []struct {
		table *table
		hold  time.Duration
	}{{working, holdFor}, {flatOut, 0}} {
		err := b.everybody(c.table, b.repeat, 3*b.turn+b.patience(), func(t *turn) ([]float64, error) { return t.share(c.hold) })
		if err != nil {
			return nil, err
		}
	}
	beside, err := admission(b)
	if err != nil {
		return nil, err
	}
	r := &report{
		tables: []*table{working, flatOut, beside},
		charts: []chart{{"semaphore-commands", working, 0}, {"semaphore-permits", flatOut, 1}, {"semaphore-admission", beside, 2}},
	}
	for _, c := range []struct{ name, says string }{judged[0], judged[2]} {
		r.musts = append(r.musts,
			atMost("held for 20 ms, commands sent per permit"+c.says, working.median(c.name, 0), 3.5, 3.1, ""),
			atMost("released at once, commands sent per permit"+c.says, flatOut.median(c.name, 0), 3.5, 3.1, ""),
			atLeast("held for 20 ms, permits/s"+c.says, working.median(c.name, 1)/working.bestPeer(1), 1, 1, "× best peer"),
			atMost("beside 10,000 permits, p50"+c.says, beside.median(c.name, 2)/beside.median(c.name, 0), 1.5, 1.2, "× beside 10"),
		)
	}
	return r, nil
}

const (
	inOrder       = "lockstep, WithOrder"
	npmSemaphore  = "redis-semaphore (npm)"
	permits       = 10
	whoWantOne    = 100 + permits
	pollSemaphore = 10 * time.Millisecond // the default of npm redis-semaphore
)

var semaphoreContenders = []contender{
	{plain, ours, "goredis.New(redis.NewClient(Addr), WithMaxTTL), semaphore.New(store, 10), locker.WithTTL", lockstepSemaphore()},
	again(contender{name: plain, open: lockstepSemaphore()}),
	{overRueidis, ours, "rueidisstore.New(…, WithMaxTTL), the same", lockstepSemaphoreRueidis},
	{inOrder, ours, "as lockstep, with semaphore.WithOrder", lockstepSemaphore(semaphore.WithOrder())},
	{npmSemaphore, peer, "new Semaphore(new Redis(port), key, 10), acquireTimeout: Infinity; by default each waiter tries every 10 ms",
		func(place) (*locks, error) { return nil, errors.New("it runs in node") }},
	{"Redis in Action 6.3.1", reference,
		"written for this table: ZREMRANGEBYSCORE, ZADD and ZRANK in MULTI, with the time of the client; each waiter tries every 10 ms",
		openInAction},
	{"BLPOP of 10 elements", reference,
		"written for this table: who has an element has a permit. There are no leases: the permit of a dead client is lost for ever", openTokens},
}

// share lets the clients work for three turns, so that each gets several permits.
func (t *turn) share(hold time.Duration) ([]float64, error) {
	begin := t.fleet
	if t.name == npmSemaphore {
		begin = t.npmFleet
	}
	n := t.size(whoWantOne, permits+5)
	count, err := begin(n, hold)
	if err != nil {
		return nil, err
	}
	time.Sleep(t.turn / 2)
	start, err := t.counters()
	if err != nil {
		return nil, err
	}
	before, err := count()
	if err != nil {
		return nil, err
	}
	time.Sleep(3 * t.turn)
	after, err := count()
	if err != nil {
		return nil, err
	}
	end, err := t.counters()
	if err != nil {
		return nil, err
	}
	took, used := end.at.Sub(start.at).Seconds(), end.since(start)
	for i := range after.Grants {
		after.Grants[i] -= before.Grants[i]
	}
	total := 0
	for _, n := range after.Grants {
		total += int(n)
	}
	switch {
	case total == 0:
		return nil, errors.New("nobody got one")
	case after.Most > permits && t.kind == ours:
		return nil, fmt.Errorf("%w: %d had a permit of %d", errTwo, after.Most, permits)
	}
	return []float64{
		per(after.Sent-before.Sent, total), float64(total) / took, per(used.executed, total), per(used.cpu, total) / 1000,
		float64(slices.Min(after.Grants)) / float64(slices.Max(after.Grants)), float64(after.Most),
	}, nil
}

// A tally is what the clients of a semaphore have done so far.
type tally struct {
	Grants []int64 // of each client
	Sent   int64   // commands of all
	Most   int64   // that had a permit at once, since the last tally
}

// fleet starts the clients. They stop when the turn ends.
func (t *turn) fleet(n int, held time.Duration) (count func() (tally, error), err error) {
	var all []*locks
	for range n {
		l, err := t.open(place{addrs: t.addrs(1), ttl: ttl, waiters: n - permits, permits: permits, sent: &t.sent})
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	var (
		over         atomic.Bool
		inside, most atomic.Int64
		grants       = make([]atomic.Int64, n)
		mu           sync.Mutex
		failed       error
	)
	t.after(func() { over.Store(true) })
	for i, l := range all {
		t.working.Go(func() {
			ctx := context.Background()
			for !over.Load() {
				release, err := l.lock(ctx, t.key)
				if err == nil {
					for now := inside.Add(1); ; {
						if m := most.Load(); now <= m || most.CompareAndSwap(m, now) {
							break
						}
					}
					grants[i].Add(1)
					if held > 0 {
						hold(held)
					}
					inside.Add(-1)
					err = release(ctx)
				}
				if err != nil && !over.Load() {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
				if err != nil {
					return
				}
			}
		})
	}
	return func() (tally, error) {
		c := tally{Sent: t.sent.Load(), Most: most.Swap(inside.Load())}
		for i := range grants {
			c.Grants = append(c.Grants, grants[i].Load())
		}
		mu.Lock()
		defer mu.Unlock()
		return c, failed
	}, nil
}

// admission measures a client that takes one more permit and releases it, beside many that are
// held.
func admission(b *bench) (*table, error) {
	sizes := []int{10, b.size(1_000, 20), b.size(10_000, 50)}
	var metrics []metric
	for _, n := range sizes {
		metrics = append(metrics, metric{"beside " + number(float64(n), 0) + ": p50, µs", 0, false})
	}
	tb := newTable("One more permit of a semaphore, and its release", plain, metrics,
		semaphoreContenders[0], semaphoreContenders[1], semaphoreContenders[2],
		contender{"walk over a hash", reference,
			"written for this table: a script looks at the end of each permit in a hash, as the counter of permits needs", openHashWalk})
	// Its own limit: 10,000 permits have to be taken first.
	return tb, b.everybody(tb, b.half(), 2*b.patience(), func(t *turn) (figures []float64, err error) {
		for _, n := range sizes {
			l, err := t.open(place{addrs: t.addrs(1), ttl: 10 * time.Minute, permits: n + 1})
			if err != nil {
				return nil, err
			}
			key := fmt.Sprintf("%s:%d", t.key, n)
			if l.fill != nil {
				err = l.fill(key, n)
			} else {
				err = atOnce(n, func(int) error {
					_, err := l.lock(context.Background(), key)
					return err
				})
			}
			if err != nil {
				return nil, err
			}
			rounds := t.size(500, 3)
			times := make([]time.Duration, rounds)
			for i := range times {
				start := time.Now()
				release, err := l.lock(context.Background(), key)
				if err == nil {
					err = release(context.Background())
				}
				if err != nil {
					return nil, err
				}
				times[i] = time.Since(start)
			}
			slices.Sort(times)
			figures = append(figures, lab.Micros(times, 50))
		}
		return figures, nil
	})
}
