package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// waiters is case (g): 10,000 goroutines of one client wait for locks that are held all the time,
// for one lock or for a lock each, with a ctx that can end. The figures are the cost while nothing
// happens.
func waiters(b *bench) (*report, error) {
	n := b.size(10_000, 50)
	all := slices.Concat(lockstepOnOne, []contender{rueidislockAsItIs, rueidislockTuned}, peersThatPoll())
	metrics := []metric{
		{"heap per waiter, B", 0, false}, {"goroutines beside the callers'", 0, false}, {"commands sent/s", 0, false},
		{"per key that is waited for", 2, false}, {"server: of a core, %", 1, false},
	}
	var tables []*table
	for _, keys := range []int{1, n} {
		title := fmt.Sprintf("%s waiting for one key", number(float64(n), 0))
		if keys > 1 {
			title = fmt.Sprintf("%s waiting, each for a key of its own", number(float64(n), 0))
		}
		tb := newTable(title, "", metrics, all...)
		if len(lockstepOnOne) > 0 {
			tb.rows = slices.Insert(tb.rows, 1, newTable("", "", metrics, again(lockstepOnOne[0])).rows[0])
		}
		err := b.everybody(tb, b.third(), b.time(60*time.Second, 20*time.Second), func(t *turn) ([]float64, error) { return t.crowd(n, keys) })
		if err != nil {
			return nil, err
		}
		tables = append(tables, tb)
	}
	one, each := tables[0], tables[1]
	r := &report{tables: tables, charts: []chart{{"waiters-heap", each, 0}, {"waiters-commands", each, 3}}}
	for _, c := range []struct{ name, says string }{judged[0], judged[2]} {
		r.musts = append(r.musts,
			atMost("one key, heap per waiter"+c.says, one.median(c.name, 0), 2048, 2048, "B"),
			atMost("10,000 keys, heap per waiter"+c.says, each.median(c.name, 0), 2048, 2048, "B"),
			atMost("one key, goroutines per waiter"+c.says, one.median(c.name, 1)/float64(n), 0.01, 0.01, ""),
			atMost("10,000 keys, goroutines per waiter"+c.says, each.median(c.name, 1)/float64(n), 0.01, 0.01, ""),
			atMost("one key, commands/s"+c.says, one.median(c.name, 3), 0.5, 0.5, "per key"),
			atMost("10,000 keys, commands/s"+c.says, each.median(c.name, 3), 0.5, 0.5, "per key"),
		)
	}
	return r, nil
}

// peersThatPoll are not tuned: ten thousand of them load the server enough.
func peersThatPoll() []contender { return []contender{peersThatWait[0], peersThatWait[2]} }

func (t *turn) crowd(n, keys int) ([]float64, error) {
	c, err := t.child(job{
		Kind: "wait in a crowd", Contender: t.name, Addr: t.addrs(1)[0], Key: t.key, TTL: 10 * time.Minute, Count: n, Keys: keys,
		// A waiter that has waited for less than 24 s makes attempts more often than later: after a
		// quarter of that time, 6 s at most.
		Settle: t.time(25*time.Second, 150*time.Millisecond), Window: t.time(8*time.Second, 150*time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	var w crowd
	if err := c.hear("begin", &struct{}{}); err != nil {
		return nil, err
	}
	before, err := t.counters()
	if err != nil {
		return nil, err
	}
	if err := c.hear("end", &w); err != nil {
		return nil, err
	}
	after, err := t.counters()
	if err != nil {
		return nil, err
	}
	took := after.at.Sub(before.at).Seconds()
	return []float64{
		w.Heap, float64(w.Goroutines), float64(w.Sent) / took, float64(w.Sent) / took / float64(keys),
		100 * after.since(before).cpu.Seconds() / took,
	}, nil
}

// crowd is what the process measures of itself.
type crowd struct {
	Heap       float64 // bytes per waiter
	Goroutines int
	Sent       int64
}

const atAGate = 500

func waitInACrowd(j job, in *bufio.Reader) error {
	p := place{addrs: []string{j.Addr}, ttl: j.TTL, waiters: j.Count, sent: new(atomic.Int64)}
	holder, err := openNamed(j.Contender, place{addrs: p.addrs, ttl: p.ttl})
	if err != nil {
		return err
	}
	key := func(i int) string { return fmt.Sprintf("%s:%d", j.Key, i%j.Keys) }
	held := make([]unlock, j.Keys)
	if err := atOnce(j.Keys, func(i int) (err error) {
		held[i], err = holder.lock(context.Background(), key(i))
		return err
	}); err != nil {
		return err
	}
	l, err := openNamed(j.Contender, p)
	if err != nil {
		return err
	}
	if err := warm(l, j.Key); err != nil {
		return err
	}
	keys := make([]string, j.Count)
	for i := range keys {
		keys[i] = key(i)
	}
	// Not all at once: clients with few connections fail calls that wait long for one.
	gates, failed := make([]chan struct{}, j.Count/atAGate+1), make(chan error, j.Count)
	for i := range gates {
		gates[i] = make(chan struct{})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range j.Count {
		go func() {
			<-gates[i/atAGate]
			if _, err := l.lock(ctx, keys[i]); err == nil {
				failed <- errors.New("a lock that was held was granted")
			} else if ctx.Err() == nil {
				failed <- err
			}
		}()
	}
	for runtime.NumGoroutine() < j.Count {
		time.Sleep(time.Millisecond)
	}
	heapBefore, goroutinesBefore := heap(), runtime.NumGoroutine()
	for _, gate := range gates {
		close(gate)
		time.Sleep(j.Settle / 40)
	}
	time.Sleep(j.Settle)
	say("begin", struct{}{})
	sent := p.sent.Load()
	time.Sleep(j.Window)
	w := crowd{Sent: p.sent.Load() - sent, Goroutines: runtime.NumGoroutine() - goroutinesBefore}
	w.Heap = math.Max(0, heap()-heapBefore) / float64(j.Count)
	select {
	case err := <-failed:
		return err
	default:
	}
	say("end", w)
	runtime.KeepAlive(held)
	_, _ = in.ReadString('\n') // until the parent has looked
	return nil
}
