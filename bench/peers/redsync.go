package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
)

func openRedsync(over pools, opts ...redsync.Option) func(place) (*locks, error) {
	return func(p place) (*locks, error) {
		all, end, err := over(p)
		if err != nil {
			return nil, err
		}
		open, cancel := context.WithCancel(context.Background()) // ends the attempts when the client is closed
		sync := redsync.New(all...)
		opts := append([]redsync.Option{redsync.WithExpiry(p.ttl)}, opts...)
		return &locks{
			lock: func(ctx context.Context, key string) (unlock, error) {
				if ctx.Done() == nil {
					ctx = open
				}
				m := sync.NewMutex(key, opts...)
				for {
					err := m.LockContext(ctx)
					if taken := (*redsync.ErrTaken)(nil); err != nil && ctx.Err() == nil && open.Err() == nil &&
						(errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)) {
						continue // it stops after its tries
					}
					if err != nil {
						return nil, err
					}
					return func(ctx context.Context) error {
						_, err := m.UnlockContext(ctx)
						return err
					}, nil
				}
			},
			close: func() { cancel(); end() },
		}, nil
	}
}

// openRedsyncTuned tries so often that a call with a ctx of its own has to be told when its client is closed: it would go on
// for an hour, beside the contenders that follow.
func openRedsyncTuned(p place) (*locks, error) {
	l, err := openRedsync(overGoredis, redsync.WithTries(1e6), redsync.WithRetryDelay(tuned(p.waiters)))(p)
	if err != nil {
		return nil, err
	}
	open, cancel := context.WithCancel(context.Background())
	lock, end := l.lock, l.close
	l.lock = func(ctx context.Context, key string) (unlock, error) {
		if ctx.Done() == nil {
			return lock(ctx, key)
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(open, stop)()
		return lock(ctx, key)
	}
	l.close = func() { cancel(); end() }
	return l, nil
}

func openRedsyncFast(over pools) func(place) (*locks, error) {
	return openRedsync(over, redsync.WithFailFast(true))
}

// pools opens the clients of the nodes, which redsync calls pools.
type pools func(place) (all []redis.Pool, end func(), err error)

func overGoredis(p place) ([]redis.Pool, func(), error) {
	clients := p.goredisEach()
	all := make([]redis.Pool, len(clients))
	for i, c := range clients {
		all[i] = goredis.NewPool(c)
	}
	return all, closing(clients), nil
}

func overRueidisPools(p place) ([]redis.Pool, func(), error) {
	clients, end, err := p.rueidisEach()
	if err != nil {
		return nil, nil, err
	}
	all := make([]redis.Pool, len(clients))
	for i, c := range clients {
		all[i] = redsyncrueidis.NewPool(rueidiscompat.NewAdapter(c))
	}
	return all, end, nil
}
