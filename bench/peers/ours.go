package main

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/backends/rueidisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// upToAnHour is for cases with leases of minutes. It has no cost.
var upToAnHour = redisstore.WithMaxTTL(time.Hour)

func lockstepGoredis(opts ...locker.ClientOption) func(place) (*locks, error) {
	return func(p place) (*locks, error) {
		c := p.goredis(0)
		return lockstep(p, single.New(goredis.New(c, upToAnHour)), func() { _ = c.Close() }, opts...), nil
	}
}

func lockstepRueidis(p place) (*locks, error) {
	nodes, end, err := p.rueidisLocks()
	if err != nil {
		return nil, err
	}
	return lockstep(p, nodes[0], end), nil
}

func lockstepSemaphore(opts ...semaphore.Option) func(place) (*locks, error) {
	return func(p place) (*locks, error) {
		c := p.goredis(0)
		return lockstep(p, semaphore.New(goredis.New(c, upToAnHour), p.permits, opts...), func() { _ = c.Close() }), nil
	}
}

func lockstepSemaphoreRueidis(p place) (*locks, error) {
	clients, end, err := p.rueidisEach()
	if err != nil {
		return nil, err
	}
	return lockstep(p, semaphore.New(rueidisstore.New(clients[0], upToAnHour), p.permits), end), nil
}

func openRW(p place) (*locks, error) {
	c := p.goredis(0)
	return readWrite(p, rwlock.New(goredis.New(c, upToAnHour)), func() { _ = c.Close() }), nil
}

func openRWRueidis(p place) (*locks, error) {
	clients, end, err := p.rueidisEach()
	if err != nil {
		return nil, err
	}
	return readWrite(p, rwlock.New(rueidisstore.New(clients[0], upToAnHour)), end), nil
}

func readWrite(p place, rw *rwlock.RW, end func()) *locks {
	l := lockstep(p, rw.Readers(), end)
	l.write = lockstep(p, rw.Writers(), nil).lock
	return l
}

func lockstepRedlock(p place) (*locks, error) {
	clients := p.goredisEach()
	nodes := make([]locker.Locker, len(clients))
	for i, c := range clients {
		nodes[i] = single.New(goredis.New(c, upToAnHour))
	}
	return quorum(p, nodes, closing(clients))
}

func lockstepRedlockRueidis(p place) (*locks, error) {
	nodes, end, err := p.rueidisLocks()
	if err != nil {
		return nil, err
	}
	return quorum(p, nodes, end)
}

// rueidisLocks opens a client for each server.
func (p place) rueidisLocks() ([]locker.Locker, func(), error) {
	clients, end, err := p.rueidisEach()
	if err != nil {
		return nil, nil, err
	}
	all := make([]locker.Locker, len(clients))
	for i, c := range clients {
		all[i] = single.New(rueidisstore.New(c, upToAnHour))
	}
	return all, end, nil
}

func quorum(p place, nodes []locker.Locker, end func()) (*locks, error) {
	l, err := redlock.New(nodes)
	if err != nil {
		return nil, err
	}
	return lockstep(p, l, end), nil
}

func lockstep(p place, l locker.Locker, end func(), opts ...locker.ClientOption) *locks {
	client := locker.New(l, append(opts, locker.WithTTL(p.ttl))...)
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			held, err := client.Lock(ctx, key)
			if err != nil {
				return nil, err
			}
			return held.Unlock, nil
		},
		close: end,
	}
}
