package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// renewal is case (f): a process holds 100,000 locks with a TTL of 30 s and only renews them.
// redsync and redislock do not renew by themselves, so they are not here.
func renewal(b *bench) (*report, error) {
	n, life := b.size(100_000, 100), b.time(30*time.Second, ttl)
	tb := newTable(fmt.Sprintf("%s locks held, TTL %v", number(float64(n), 0), life), "", []metric{
		{"of a core, %", 1, false}, {"heap per lock, B", 0, false}, {"goroutines", 0, false}, {"commands sent/s", 0, false},
		{"server: of a core, %", 1, false}, {"keys kept, %", 0, true},
	}, slices.Concat(lockstepOnOne, []contender{rueidislockTuned})...)
	if len(lockstepOnOne) > 0 {
		tb.rows = slices.Insert(tb.rows, 1, newTable("", "", tb.metrics, again(lockstepOnOne[0])).rows[0])
	}
	err := b.everybody(tb, b.third(), b.time(150*time.Second, 20*time.Second), func(t *turn) ([]float64, error) {
		// The window of two thirds of the TTL has two renewals of Lockstep, and more than one of
		// any other. A third and a little more passes before it.
		c, err := t.child(job{
			Kind: "hold many", Contender: t.name, Addr: t.addrs(1)[0], Key: t.key, TTL: life, Count: n,
			Settle: b.time(life/3+life/10, 100*time.Millisecond), Window: b.time(life*2/3, 200*time.Millisecond),
		})
		if err != nil {
			return nil, err
		}
		var held holding
		if err := c.hear("begin", &struct{}{}); err != nil {
			return nil, err
		}
		before, err := t.counters()
		if err != nil {
			return nil, err
		}
		if err := c.hear("end", &held); err != nil {
			return nil, err
		}
		after, err := t.counters()
		if err != nil {
			return nil, err
		}
		keys, err := t.admins[0].DBSize(context.Background()).Result()
		if err != nil {
			return nil, err
		}
		took := after.at.Sub(before.at)
		return []float64{
			100 * held.Core, held.Heap, float64(held.Goroutines), float64(held.Sent) / took.Seconds(),
			100 * after.since(before).cpu.Seconds() / took.Seconds(), 100 * float64(keys) / float64(n),
		}, nil
	})
	if err != nil {
		return nil, err
	}
	r := &report{
		tables: []*table{tb},
		charts: []chart{{"renewal-cpu", tb, 0}, {"renewal-heap", tb, 1}},
		headlines: []headline{
			{"100,000 locks held: of a core", tb.median(plain, 0), "%"},
			{"100,000 locks held: bytes each", tb.median(plain, 1), ""},
		},
	}
	for _, c := range []struct{ name, says string }{judged[0], judged[2]} {
		r.musts = append(r.musts,
			atMost("CPU of the client process"+c.says, tb.median(c.name, 0), 7, 4, "% of a core"),
			atMost("heap per lock"+c.says, tb.median(c.name, 1), 600, 600, "B"),
			atLeast("keys kept"+c.says, tb.median(c.name, 5), 100, 100, "%"),
		)
	}
	return r, nil
}

// holding is what the process measures of itself.
type holding struct {
	Core       float64 // CPU time divided by time
	Heap       float64 // bytes per lock
	Goroutines int
	Sent       int64
}

func holdMany(j job, in *bufio.Reader) error {
	p := place{addrs: []string{j.Addr}, ttl: j.TTL, sent: new(atomic.Int64)}
	l, err := openNamed(j.Contender, p)
	if err != nil {
		return err
	}
	if err := warm(l, j.Key); err != nil {
		return err
	}
	before := heap()
	held := make([]unlock, j.Count) // its own size does not count as locks
	before += float64(cap(held) * 8)
	if err := atOnce(j.Count, func(i int) (err error) {
		held[i], err = l.lock(context.Background(), fmt.Sprintf("%s:%d", j.Key, i))
		return err
	}); err != nil {
		return err
	}
	time.Sleep(j.Settle)
	say("begin", struct{}{})
	sent := p.sent.Load()
	start := time.Now()
	used, err := lab.CPUTime()
	if err != nil {
		return err
	}
	time.Sleep(j.Window)
	usedNow, err := lab.CPUTime()
	if err != nil {
		return err
	}
	took := time.Since(start)
	h := holding{Core: (usedNow - used).Seconds() / took.Seconds(), Sent: p.sent.Load() - sent, Goroutines: runtime.NumGoroutine()}
	h.Heap = (heap() - before) / float64(j.Count)
	say("end", h)
	runtime.KeepAlive(held)
	_, _ = in.ReadString('\n') // until the parent has looked
	return nil
}

// warm opens all connections of l, since they are no part of the cost of a lock or a waiter.
func warm(l *locks, key string) error {
	return atOnce(4*many, func(i int) error {
		_, err := l.some(key+":warm", i, 1)
		return err
	})
}

// atOnce calls do n times, 64 at once.
func atOnce(n int, do func(i int) error) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for worker := range many {
		all.Go(func() {
			for i := worker; i < n; i += many {
				if err := do(i); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	all.Wait()
	return failed
}

// heap is the number of bytes in use after garbage collection.
func heap() float64 {
	runtime.GC()
	runtime.GC() // the second one frees objects with a finalizer or in a pool
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
