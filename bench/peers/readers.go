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
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/redis/go-redis/v9"
)

// readers is case (j): in the first table 64 goroutines of 8 clients read under one key all the
// time. In the others 100 readers wait for a writer; the figure is the time from the call of its
// Unlock until the first and the last of them may read.
func readers(b *bench) (*report, error) {
	reading := newTable("64 readers of 8 clients, one key", pollRW.name, []metric{
		{"reads/s", 0, true}, {"commands sent per read", 2, false}, {"executed", 1, false}, {"server CPU, µs", 0, false},
	}, slices.Concat([]contender{pollRW, again(pollRW)}, lockstepRW)...)
	err := b.everybody(reading, b.repeat, b.turn+b.patience(), func(t *turn) ([]float64, error) { return t.readAll(8) })
	if err != nil {
		return nil, err
	}
	r := &report{tables: []*table{reading}, charts: []chart{{"readers-rate", reading, 0}}}
	n := b.size(100, 10)
	var waiting []*table
	for _, clients := range []int{n, n / 10} {
		title := fmt.Sprintf("%d readers wait for a writer, a client each", n)
		if clients < n {
			title = fmt.Sprintf("%d readers of %d clients wait for a writer", n, clients)
		}
		tb := newTable(title, wakeRW.name, []metric{
			{"last: p50, ms", 2, false}, {"longest", 2, false}, {"first: p50, ms", 2, false}, {"commands sent per reader", 2, false},
			{"executed", 1, false},
		}, slices.Concat([]contender{wakeRW, again(wakeRW), pollRW}, lockstepRW)...)
		err := b.everybody(tb, b.repeat, 2*b.patience(), func(t *turn) ([]float64, error) { return t.admitted(n, clients) })
		if err != nil {
			return nil, err
		}
		waiting = append(waiting, tb)
	}
	r.tables = append(r.tables, waiting...)
	r.charts = append(r.charts, chart{"readers-admitted", waiting[0], 0}, chart{"readers-admitted-commands", waiting[0], 3})
	for _, c := range []struct{ name, says string }{judged[0], judged[2]} {
		r.musts = append(r.musts,
			atMost("64 readers, commands sent per read"+c.says, reading.median(c.name, 1), 2.1, 2.1, ""),
			atMost("100 readers after a writer, commands sent per reader"+c.says, waiting[0].median(c.name, 3), 3.5, 3, ""),
			atMost("100 readers of 10 clients after a writer, commands sent per reader"+c.says, waiting[1].median(c.name, 3), 2.5, 2.1, ""),
		)
	}
	return r, nil
}

var (
	lockstepRW = []contender{
		{plain, ours, "rwlock.New(goredis.New(redis.NewClient(Addr), WithMaxTTL)), locker.WithTTL", openRW},
		{overRueidis, ours, "rwlock.New(rueidisstore.New(…, WithMaxTTL)), locker.WithTTL", openRWRueidis},
	}
	pollRW = contender{"reader and writer keys, polling", reference,
		"written for this table: scripts that keep readers in a sorted set and a writer in a string; who is refused tries every 10 ms",
		openHandRW(false)}
	wakeRW = contender{"reader and writer keys, pub/sub wake", reference,
		"the same scripts; the release of a writer is published, and wakes all", openHandRW(true)}
)

// readAll lets 64 goroutines read for a turn.
func (t *turn) readAll(clients int) ([]float64, error) {
	var all []*locks
	for range clients {
		l, err := t.open(place{addrs: t.addrs(1), ttl: ttl, waiters: many, sent: &t.sent})
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	var over atomic.Bool
	var reads atomic.Int64
	var mu sync.Mutex
	var failed error
	for i := range many {
		t.working.Go(func() {
			for !over.Load() {
				release, err := all[i%clients].lock(context.Background(), t.key)
				if err == nil {
					err = release(context.Background())
				}
				if err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
				reads.Add(1)
			}
		})
	}
	time.Sleep(t.turn / 4)
	before, err := t.counters()
	if err != nil {
		return nil, err
	}
	total := reads.Load()
	time.Sleep(t.turn)
	after, err := t.counters()
	if err != nil {
		return nil, err
	}
	total = reads.Load() - total
	over.Store(true)
	t.working.Wait()
	used, n := after.since(before), int(total)
	return []float64{
		float64(total) / after.at.Sub(before.at).Seconds(), per(used.sent, n), per(used.executed, n), per(used.cpu, n) / 1000,
	}, failed
}

// admitted lets n readers wait for a writer, several times. A reader keeps its lock until all have
// theirs.
func (t *turn) admitted(n, clients int) ([]float64, error) {
	p := place{addrs: t.addrs(1), ttl: ttl, waiters: n, sent: &t.sent}
	var all []*locks
	for range clients + 1 {
		l, err := t.open(p)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	writer, ctx := all[clients], context.Background()
	var firsts, lasts []time.Duration
	var sent, executed int64
	rounds := t.size(20, 2)
	for round := range rounds + 1 { // the first one warms up
		release, err := writer.write(ctx, t.key)
		if err != nil {
			return nil, err
		}
		var reading, done sync.WaitGroup
		reading.Add(n)
		times, errs := make([]time.Time, n), make([]error, n)
		for i := range n {
			done.Go(func() {
				release, err := all[i%clients].lock(ctx, t.key)
				times[i] = time.Now()
				reading.Done()
				if err == nil {
					reading.Wait()
					err = release(ctx)
				}
				errs[i] = err
			})
		}
		time.Sleep(t.time(200*time.Millisecond, 20*time.Millisecond)) // until all have asked
		before, err := t.counters()
		if err != nil {
			return nil, err
		}
		released := time.Now()
		if err := release(ctx); err != nil {
			return nil, err
		}
		done.Wait()
		after, err := t.counters()
		if err := errors.Join(append(errs, err)...); err != nil {
			return nil, err
		}
		if round == 0 {
			continue
		}
		slices.SortFunc(times, time.Time.Compare)
		firsts, lasts = append(firsts, times[0].Sub(released)), append(lasts, times[n-1].Sub(released))
		used := after.since(before)
		sent, executed = sent+used.sent, executed+used.executed
	}
	return []float64{
		lab.Quantile(lasts, 50), lab.Quantile(lasts, 100), lab.Quantile(firsts, 50), per(sent, rounds*n), per(executed, rounds*n),
	}, nil
}

// openHandRW has no queue: readers that overlap keep a writer out for ever.
func openHandRW(wake bool) func(place) (*locks, error) {
	read := redis.NewScript(`if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)
	write := redis.NewScript(`local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) > 0 then return 0 end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
return 0`)
	unwrite := redis.NewScript(`if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
return redis.call('PUBLISH', KEYS[1] .. ':wake', '')`)
	return func(p place) (*locks, error) {
		c := p.goredis(0)
		wakes := &crier{client: c, heard: map[string]chan struct{}{}}
		var closed atomic.Bool
		enter := func(ctx context.Context, key string, script *redis.Script) (id string, err error) {
			id = contract.NewToken()
			for !closed.Load() {
				var woken <-chan struct{}
				if wake {
					if woken, err = wakes.next(ctx, key+":writer:wake"); err != nil {
						return "", err
					}
				}
				ok, err := script.Run(ctx, c, []string{key, key + ":writer"}, id, p.ttl.Milliseconds()).Bool()
				if ok || err != nil {
					return id, err
				}
				most := pollSemaphore
				if wake {
					most = missed
				}
				select {
				case <-woken:
				case <-time.After(most):
				}
			}
			return "", errOver
		}
		return &locks{
			lock: func(ctx context.Context, key string) (unlock, error) {
				id, err := enter(ctx, key, read)
				return func(ctx context.Context) error { return c.ZRem(ctx, key, id).Err() }, err
			},
			write: func(ctx context.Context, key string) (unlock, error) {
				id, err := enter(ctx, key, write)
				return func(ctx context.Context) error { return unwrite.Run(ctx, c, []string{key + ":writer"}, id).Err() }, err
			},
			close: func() { closed.Store(true); wakes.close(); _ = c.Close() },
		}, nil
	}
}

// A crier wakes all goroutines of a client that wait for a channel, by one subscription.
type crier struct {
	client *redis.Client

	mu    sync.Mutex
	heard map[string]chan struct{} // closed at the next message
	open  []*redis.PubSub
}

// next returns a channel that is closed at the next message.
func (s *crier) next(ctx context.Context, channel string) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.heard[channel]; ok {
		return known, nil
	}
	sub := s.client.Subscribe(ctx, channel)
	s.open = append(s.open, sub)
	if _, err := sub.Receive(ctx); err != nil {
		return nil, err
	}
	s.heard[channel] = make(chan struct{})
	go func() {
		for {
			if _, err := sub.ReceiveMessage(context.Background()); err != nil {
				return
			}
			s.mu.Lock()
			close(s.heard[channel])
			s.heard[channel] = make(chan struct{})
			s.mu.Unlock()
		}
	}()
	return s.heard[channel], nil
}

func (s *crier) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.open {
		_ = sub.Close()
	}
}
