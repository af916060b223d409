package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/bsm/redislock"
)

// openRedislock polls with linear backoff. Without a pause it makes one attempt.
func openRedislock(sleep pause) func(place) (*locks, error) {
	return func(p place) (*locks, error) {
		c := p.goredis(0)
		l := redislock.New(c)
		var closed atomic.Bool
		return &locks{
			lock: func(ctx context.Context, key string) (unlock, error) {
				for {
					var o *redislock.Options
					if sleep != nil {
						o = &redislock.Options{RetryStrategy: redislock.LinearBackoff(sleep(p.waiters))}
					}
					held, err := l.Obtain(ctx, key, p.ttl, o)
					if errors.Is(err, redislock.ErrNotObtained) && sleep != nil && ctx.Err() == nil && !closed.Load() {
						continue // Obtain waits for the TTL at most
					}
					if err != nil {
						return nil, err
					}
					return held.Release, nil
				}
			},
			close: func() { closed.Store(true); _ = c.Close() },
		}, nil
	}
}
