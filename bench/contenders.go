package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	lockgoredis "github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

const ttl = 10 * time.Second

var errNotHeld = errors.New("the lock was not held")

// raw is the least that a safe lock on one instance can cost.
func raw(client *redis.Client) func(context.Context) error {
	release := redis.NewScript(
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return func(ctx context.Context) error {
		set, err := client.SetNX(ctx, "bench:raw", "token", ttl).Result()
		if err != nil || !set {
			return errors.Join(err, errNotHeld)
		}
		return release.Run(ctx, client, []string{"bench:raw"}, "token").Err()
	}
}

// scripts is raw with a script for the acquisition too. Such a script could return the rest of the
// holder's lease.
func scripts(client *redis.Client) func(context.Context) error {
	acquire := redis.NewScript(`local value = redis.call('GET', KEYS[1])
if not value then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return {1, 0} end
if value == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return {1, 0} end
return {0, redis.call('PTTL', KEYS[1])}`)
	release := redis.NewScript(
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	return func(ctx context.Context) error {
		if err := acquire.Run(ctx, client, []string{"bench:scripts"}, "token", ttl.Milliseconds()).Err(); err != nil {
			return err
		}
		return release.Run(ctx, client, []string{"bench:scripts"}, "token").Err()
	}
}

func lockstep(client *redis.Client) func(context.Context) error {
	locks := locker.New(single.New(lockgoredis.New(client)), locker.WithTTL(ttl))
	return func(ctx context.Context) error {
		l, err := locks.Lock(ctx, "bench:lockstep")
		if err != nil {
			return err
		}
		return l.Unlock(ctx)
	}
}

func redislockPair(client *redis.Client) func(context.Context) error {
	locks := redislock.New(client)
	return func(ctx context.Context) error {
		l, err := locks.Obtain(ctx, "bench:redislock", ttl, nil)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
}

func redsyncPair(client *redis.Client) func(context.Context) error {
	locks := redsync.New(goredis.NewPool(client))
	return func(ctx context.Context) error {
		m := locks.NewMutex("bench:redsync", redsync.WithExpiry(ttl))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
	}
}
