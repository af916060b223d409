package main

import (
	"bufio"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/bench/internal/lab"
)

// firstInLine is the second part of case (d). The first waiter is a separate process, which is
// stopped (SIGSTOP) or killed (SIGKILL) just before the release. The figure is the time until
// another waiter has the lock.
func firstInLine(b *bench) (*table, error) {
	tb := newTable("The first in line is frozen or killed, 3 wait behind it", "", []metric{
		{"frozen: p50, ms", 2, false}, {"longest", 1, false}, {"killed: p50, ms", 2, false}, {"longest", 1, false},
	}, slices.Concat([]contender{popWake, again(popWake), bareWake}, lockstepOnOne, peersThatWait)...)
	return tb, b.everybody(tb, b.half(), 2*b.patience(), func(t *turn) ([]float64, error) {
		var all []*locks
		for range behind + 1 {
			l, err := t.open(place{addrs: t.addrs(1), ttl: ttl, waiters: behind + 1})
			if err != nil {
				return nil, err
			}
			all = append(all, l)
		}
		n := b.size(6, 1)
		frozen, err := t.withFrozen(all, n)
		if err != nil {
			return nil, err
		}
		killed, err := t.withKilled(all, n)
		if err != nil {
			return nil, err
		}
		return []float64{
			lab.Quantile(frozen, 50), lab.Quantile(frozen, 100), lab.Quantile(killed, 50), lab.Quantile(killed, 100),
		}, nil
	})
}

const behind = 3

// withFrozen uses one process for all repetitions, and continues it after each.
func (t *turn) withFrozen(all []*locks, n int) (times []time.Duration, err error) {
	c, err := t.waiter()
	if err != nil {
		return nil, err
	}
	defer c.Kill()
	for range n {
		took, err := t.disturbed(all, c, c.Freeze)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
		if err := errors.Join(c.Thaw(), c.hear("done", &struct{}{})); err != nil {
			return nil, err
		}
	}
	return times, nil
}

func (t *turn) withKilled(all []*locks, n int) (times []time.Duration, err error) {
	for range n {
		c, err := t.waiter()
		if err != nil {
			return nil, err
		}
		took, err := t.disturbed(all, c, func() error { c.Kill(); return nil })
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	return times, nil
}

// waiter starts a process that locks once for each line that it reads.
func (t *turn) waiter() (*child, error) {
	c, err := t.child(job{Kind: "stand in line", Contender: t.name, Addr: t.addrs(1)[0], Key: t.key, TTL: ttl})
	if err != nil {
		return nil, err
	}
	return c, c.hear("ready", &struct{}{})
}

func standInLine(j job, in *bufio.Reader) error {
	l, err := openNamed(j.Contender, place{addrs: []string{j.Addr}, ttl: j.TTL, waiters: behind + 1})
	if err != nil {
		return err
	}
	ctx := context.Background()
	// Another key first, so that its connections are open.
	if _, err := l.some(j.Key+":warm", 0, 1); err != nil {
		return err
	}
	say("ready", struct{}{})
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return nil //nolint:nilerror // the end of the input
		}
		say("asking", struct{}{})
		unlock, err := l.lock(ctx, j.Key)
		if err == nil {
			err = unlock(ctx)
		}
		if err != nil {
			return err
		}
		say("done", struct{}{})
	}
}

// disturbed holds the lock, lets the process and then the others wait for it, disturbs the process
// and releases the lock.
func (t *turn) disturbed(all []*locks, c *child, disturb func() error) (time.Duration, error) {
	ctx := context.Background()
	release, err := all[0].lock(ctx, t.key)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(c.tell("lock"), c.hear("asking", &struct{}{})); err != nil {
		return 0, err
	}
	asked := t.time(50*time.Millisecond, 10*time.Millisecond) // until the server knows the waiter
	time.Sleep(asked)
	var mu sync.Mutex
	var first time.Time
	var failed error
	var waiting sync.WaitGroup
	for _, l := range all[1:] {
		waiting.Go(func() {
			unlock, err := l.lock(ctx, t.key)
			now := time.Now()
			if err == nil {
				err = unlock(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			if failed = errors.Join(failed, err); first.IsZero() || now.Before(first) {
				first = now
			}
		})
	}
	time.Sleep(asked)
	if err := disturb(); err != nil {
		return 0, err
	}
	hold(holdFor)
	released := time.Now()
	if err := release(ctx); err != nil {
		return 0, err
	}
	waiting.Wait()
	return first.Sub(released), failed
}
