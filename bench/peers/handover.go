package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// handOver is case (d): a lock is held for 20 ms while others wait for it, each with its own
// client. The figure is the time from the call of Unlock to the return of the next Lock. A holder
// waits again as soon as the next one has the lock. firstInLine is the second part.
func handOver(b *bench) (*report, error) {
	metrics := []metric{
		{"p50, ms", 2, false}, {"p99, ms", 2, false}, {"commands sent per acquisition", 1, false}, {"executed", 1, false},
	}
	r := &report{}
	for _, w := range []struct {
		waiters, handOvers, repeat int
		base                       contender
	}{{1, 80, b.repeat, bareWake}, {b.size(100, 5), 80, b.half(), popWake}, {b.size(1000, 10), 50, b.third(), popWake}} {
		other := popWake
		if w.base.name == popWake.name {
			other = bareWake
		}
		tb := newTable(fmt.Sprintf("%d waiting, a client each", w.waiters), w.base.name, metrics,
			slices.Concat([]contender{w.base, again(w.base), other}, lockstepOnOne, peersThatWait,
				eachPerCall(lockstepOnOne...), eachPerCall(named(peersThatWait, tunedPeers...)...))...)
		err := b.everybody(tb, w.repeat, 2*b.patience(), func(t *turn) ([]float64, error) {
			return t.passOn(handOvers{
				place: place{addrs: t.addrs(1), ttl: ttl, waiters: w.waiters, sent: &t.sent},
				hold:  holdFor, enough: b.size(w.handOvers, 2), limit: t.time(3*time.Second, time.Second),
			})
		})
		if err != nil {
			return nil, err
		}
		r.tables = append(r.tables, tb)
	}
	frozen, err := firstInLine(b)
	if err != nil {
		return nil, err
	}
	one, hundred, thousand := r.tables[0], r.tables[1], r.tables[2]
	r.tables = append(r.tables, frozen)
	r.charts = []chart{
		{"handover-1", one, 0}, {"handover-100", hundred, 0}, {"handover-100-commands", hundred, 2}, {"handover-1000", thousand, 0},
		{"handover-killed", frozen, 2},
	}
	for _, c := range judged {
		r.musts = append(r.musts,
			atMost("1 waiter, p50"+c.says, one.median(c.name, 0)/one.median(bareWake.name, 0), 1.1, 0.9, "× bare pub/sub wake + SET"),
			atMost("1 waiter, p50"+c.says, one.median(c.name, 0)/one.bestPeer(0), 1, 1, "× best peer"),
			atMost("100 waiters, p50"+c.says, hundred.median(c.name, 0)/hundred.median(popWake.name, 0), 1.2, 0.9, "× BLPOP wake + SET"),
			atMost("100 waiters, commands sent per acquisition"+c.says, hundred.median(c.name, 2), 3.1, 2.1, ""),
			atMost("1,000 waiters, p50"+c.says, thousand.median(c.name, 0)/hundred.median(c.name, 0), 1.5, 1.5, "× that of 100"),
		)
	}
	for _, c := range []struct{ name, says string }{judged[0], judged[2]} { // firstInLine has no rows with a ctx per call
		r.musts = append(r.musts,
			atMost("first in line frozen, p50"+c.says, frozen.median(c.name, 0), 250, 250, "ms"),
			atMost("first in line killed, p50"+c.says, frozen.median(c.name, 2), 5, 5, "ms"),
		)
	}
	r.headlines = []headline{
		{"100 clients waiting: commands sent for a release and the next grant", hundred.median(plain, 2), ""},
		{"a first in line that is killed costs", frozen.median(plain, 2), "ms"},
		{"a first in line that is frozen costs", frozen.median(plain, 0), "ms"},
	}
	return r, nil
}

const holdFor = 20 * time.Millisecond

// hold sleeps for a partly random time, so that it is no multiple of a polling interval.
func hold(d time.Duration) { time.Sleep(d + rand.N(d/4)) }

// handOvers describes the hand-overs of one key. There is one client more than there are waiters.
type handOvers struct {
	place
	hold   time.Duration // how long each has the lock, at least
	enough int
	limit  time.Duration // slow contenders make fewer in this time
}

// passOn passes a lock between the waiters and one more client.
func (t *turn) passOn(h handOvers) ([]float64, error) {
	var all []*locks
	for range h.waiters + 1 {
		l, err := t.open(h.place)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	b := &baton{
		next: make(chan struct{}), settled: make(chan struct{}), over: make(chan struct{}), done: make(chan struct{}),
		enough: h.enough, hold: h.hold,
	}
	t.after(sync.OnceFunc(func() { close(b.over) }))
	ctx := context.Background()
	first, err := all[0].lock(ctx, t.key)
	if err != nil {
		return nil, err
	}
	for i, l := range all {
		t.working.Go(func() {
			held := first
			if i > 0 {
				held = nil
			}
			if err := b.run(ctx, l, t.key, held); err != nil {
				b.fail(err)
			}
		})
	}
	// Until then they warm up.
	time.Sleep(t.time(500*time.Millisecond, 20*time.Millisecond) + time.Duration(h.waiters)*t.time(2*time.Millisecond, 0))
	before, err := t.counters()
	if err != nil {
		return nil, err
	}
	close(b.settled)
	select {
	case <-b.done:
	case <-time.After(h.limit):
	}
	after, err := t.counters()
	if err != nil {
		return nil, err
	}
	times, err := b.times()
	if err != nil {
		return nil, err
	}
	if len(times) == 0 {
		return nil, errors.New("nobody got it")
	}
	used := after.since(before)
	return []float64{
		lab.Quantile(times, 50), lab.Quantile(times, 99), per(used.sent, len(times)), per(used.executed, len(times)),
	}, nil
}

// baton counts the hand-overs of one lock.
type baton struct {
	settled chan struct{} // closed when the first holder may begin
	over    chan struct{} // closed at the end
	enough  int
	hold    time.Duration
	done    chan struct{} // closed when there were enough

	mu       sync.Mutex
	released time.Time     // when Unlock was called; zero: the lock is held
	next     chan struct{} // closed when the next holder has the lock
	took     []time.Duration
	failed   error
}

// run waits for the lock again and again. The first holder begins with the lock.
func (b *baton) run(ctx context.Context, l *locks, key string, held unlock) error {
	if held != nil {
		<-b.settled
	}
	for {
		if held == nil {
			var err error
			if held, err = l.lock(ctx, key); err != nil {
				return err
			}
			if err := b.arrive(time.Now()); err != nil {
				return err
			}
		}
		hold(b.hold)
		next := b.leave()
		if err := held(ctx); err != nil {
			return err
		}
		held = nil
		select {
		case <-next:
		case <-b.over:
			return nil
		}
		select {
		case <-b.over:
			return nil
		default:
		}
	}
}

func (b *baton) arrive(at time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.released.IsZero() {
		return errTwo
	}
	if len(b.took) < b.enough {
		b.took = append(b.took, at.Sub(b.released))
		if len(b.took) == b.enough {
			close(b.done)
		}
	}
	b.released = time.Time{}
	close(b.next)
	b.next = make(chan struct{})
	return nil
}

func (b *baton) leave() (next <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.released = time.Now()
	return b.next
}

// fail notes an error, unless the turn is over: then all connections are closed.
func (b *baton) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.over:
	default:
		b.failed = errors.Join(b.failed, err)
	}
}

func (b *baton) times() ([]time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.took), b.failed
}
