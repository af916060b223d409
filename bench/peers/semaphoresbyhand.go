package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/redis/go-redis/v9"
)

// openInAction is the semaphore of Redis in Action, section 6.3.1: a sorted set of the times at
// which the permits were taken, by the clocks of the clients
// (https://redis.io/ebook/part-2-core-concepts/chapter-6-application-components-in-redis/6-3-counting-semaphores/).
func openInAction(p place) (*locks, error) {
	c := p.goredis(0)
	var closed atomic.Bool
	try := func(ctx context.Context, key, id string) (bool, error) {
		now := time.Now()
		var rank *redis.IntCmd
		_, err := c.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(now.Add(-p.ttl).UnixMicro(), 10))
			tx.ZAdd(ctx, key, redis.Z{Score: float64(now.UnixMicro()), Member: id})
			rank = tx.ZRank(ctx, key, id)
			return nil
		})
		if err != nil {
			return false, err
		}
		if rank.Val() < int64(p.permits) {
			return true, nil
		}
		return false, c.ZRem(ctx, key, id).Err()
	}
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			id := contract.NewToken()
			for {
				switch ok, err := try(ctx, key, id); {
				case err != nil:
					return nil, err
				case ok:
					return func(ctx context.Context) error { return c.ZRem(ctx, key, id).Err() }, nil
				case closed.Load():
					return nil, errOver
				}
				time.Sleep(pollSemaphore)
			}
		},
		close: func() { closed.Store(true); _ = c.Close() },
	}, nil
}

// openTokens has a list with an element for each permit. The server serves waiters in the order of
// their requests, so no semaphore needs fewer commands.
func openTokens(p place) (*locks, error) {
	c := p.goredis(0)
	setUp := redis.NewScript(`if redis.call('SET', KEYS[2], '', 'NX') then
for i = 1, ARGV[1] do redis.call('RPUSH', KEYS[1], i) end end`)
	var ready atomic.Bool
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			if !ready.Load() {
				if err := setUp.Run(ctx, c, []string{key, key + ":ready"}, p.permits).Err(); err != nil && !errors.Is(err, redis.Nil) {
					return nil, err
				}
				ready.Store(true)
			}
			for {
				taken, err := c.BLPop(ctx, missed, key).Result()
				if errors.Is(err, redis.Nil) {
					continue
				}
				if err != nil {
					return nil, err
				}
				return func(ctx context.Context) error { return c.RPush(ctx, key, taken[1]).Err() }, nil
			}
		},
		close: func() { _ = c.Close() },
	}, nil
}

// openHashWalk keeps the end of each permit in a hash, and looks at all of them. It does not wait.
func openHashWalk(p place) (*locks, error) {
	c := p.goredis(0)
	enter := redis.NewScript(`local time = redis.call('TIME')
local now, count = time[1] * 1000 + math.floor(time[2] / 1000), 0
local all = redis.call('HGETALL', KEYS[1])
for i = 2, #all, 2 do
  if tonumber(all[i]) < now then redis.call('HDEL', KEYS[1], all[i - 1]) else count = count + 1 end
end
if count >= tonumber(ARGV[3]) then return 0 end
return redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ARGV[2]))`)
	return &locks{
		lock: func(ctx context.Context, key string) (unlock, error) {
			id := contract.NewToken()
			ok, err := enter.Run(ctx, c, []string{key}, id, p.ttl.Milliseconds(), p.permits).Bool()
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, errNotHeld
			}
			return func(ctx context.Context) error { return c.HDel(ctx, key, id).Err() }, nil
		},
		fill: func(key string, n int) error {
			ends := time.Now().Add(p.ttl).UnixMilli()
			_, err := c.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
				for i := range n {
					pipe.HSet(context.Background(), key, fmt.Sprint("permit ", i), ends)
				}
				return nil
			})
			return err
		},
		close: func() { _ = c.Close() },
	}, nil
}
