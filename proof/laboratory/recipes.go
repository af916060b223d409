package laboratory

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/election"
	"github.com/redis/go-redis/v9"
)

// Recipes as they are found in many programs. Each works until the fault of its column.

// counterSemaphore counts permits in one number: INCR for a permit, DECR when it is given back.
type counterSemaphore struct {
	polled
	client  *redis.Client
	permits int64
}

func (c counterSemaphore) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	now := time.Now()
	n, err := c.client.Incr(ctx, req.Key).Result()
	if err != nil {
		return contract.Lease{}, err
	}
	if n > c.permits {
		return contract.Lease{}, refused(req.Key, c.client.Decr(ctx, req.Key).Err())
	}
	return granted(req, now), nil
}

func (c counterSemaphore) Extend(_ context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	return extended(lease, time.Now(), ttl), nil // nothing in the server ends
}

func (c counterSemaphore) Release(ctx context.Context, lease contract.Lease) error {
	return c.client.Decr(ctx, lease.Key).Err()
}

// clockSemaphore is the semaphore of Redis in Action, section 6.3.1: a sorted set of holders by the
// time at which each asked, by its own clock. Whoever asks removes those that asked longer ago than
// its own timeout.
type clockSemaphore struct {
	polled
	client  *redis.Client
	permits int64
}

func (c clockSemaphore) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	now := time.Now()
	err := c.client.Do(ctx, "zremrangebyscore", req.Key, "-inf", millis(now.Add(-req.TTL))).Err()
	if err != nil {
		return contract.Lease{}, err
	}
	if err := c.stamp(ctx, req.Key, req.Token, now); err != nil {
		return contract.Lease{}, err
	}
	rank, err := c.client.ZRank(ctx, req.Key, req.Token).Result()
	if err != nil {
		return contract.Lease{}, err
	}
	if rank >= c.permits {
		return contract.Lease{}, refused(req.Key, c.client.ZRem(ctx, req.Key, req.Token).Err())
	}
	return granted(req, now), nil
}

func (c clockSemaphore) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	now := time.Now()
	return extended(lease, now, ttl), c.stamp(ctx, lease.Key, lease.Token, now)
}

func (c clockSemaphore) Release(ctx context.Context, lease contract.Lease) error {
	return c.client.ZRem(ctx, lease.Key, lease.Token).Err()
}

func (c clockSemaphore) stamp(ctx context.Context, key, token string, now time.Time) error {
	return c.client.Do(ctx, "zadd", key, millis(now), token).Err()
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// readerSet is the side for reading of a read-write lock: a set of readers with one TTL for all.
type readerSet struct {
	polled
	client *redis.Client
}

func (r readerSet) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	now := time.Now()
	if n, err := r.client.Exists(ctx, writerOf(req.Key)).Result(); err != nil || n > 0 {
		return contract.Lease{}, refused(req.Key, err)
	}
	if err := r.client.SAdd(ctx, req.Key, req.Token).Err(); err != nil {
		return contract.Lease{}, err
	}
	return granted(req, now), r.client.PExpire(ctx, req.Key, req.TTL).Err()
}

func (r readerSet) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	now := time.Now()
	return extended(lease, now, ttl), r.client.PExpire(ctx, lease.Key, ttl).Err()
}

func (r readerSet) Release(ctx context.Context, lease contract.Lease) error {
	return r.client.SRem(ctx, lease.Key, lease.Token).Err()
}

// setWriter is the side for writing, with a key of its own.
type setWriter struct {
	polled
	client *redis.Client
}

func (w setWriter) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	now := time.Now()
	if n, err := w.client.SCard(ctx, req.Key).Result(); err != nil || n > 0 {
		return contract.Lease{}, refused(req.Key, err)
	}
	if set, err := w.client.SetNX(ctx, writerOf(req.Key), req.Token, req.TTL).Result(); err != nil || !set {
		return contract.Lease{}, refused(req.Key, err)
	}
	return granted(req, now), nil
}

func (w setWriter) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	now := time.Now()
	return extended(lease, now, ttl), w.client.PExpire(ctx, writerOf(lease.Key), ttl).Err()
}

func (w setWriter) Release(ctx context.Context, lease contract.Lease) error {
	return w.client.Del(ctx, writerOf(lease.Key)).Err()
}

func writerOf(key string) string { return key + "/writer" }

// polled is what no recipe has: a way to wake a waiter.
type polled struct{}

func (polled) Transfer(context.Context, string, contract.Request) (contract.Lease, error) {
	return contract.Lease{}, contract.ErrNoTransfer
}

func (polled) Watch(context.Context, string, string, func()) error { return errors.ErrUnsupported }

// refused is the error of an attempt that found the lock held, unless err says more.
func refused(key string, err error) error {
	if err != nil {
		return err
	}
	return &locker.HeldError{Key: key}
}

func granted(req contract.Request, now time.Time) contract.Lease {
	return contract.Lease{Key: req.Key, Token: req.Token, Granted: now, Expires: contract.Until(now, req.TTL)}
}

func extended(lease contract.Lease, now time.Time, ttl time.Duration) contract.Lease {
	lease.Expires = contract.Until(now, ttl)
	return lease
}

// A run leads whenever this process is elected, until ctx ends.
type run func(ctx context.Context, c *locker.Client, key string, opts []locker.Option, lead func(context.Context, uint64) error) error

// elected is package election.
func elected(ctx context.Context, c *locker.Client, key string, opts []locker.Option, lead func(context.Context, uint64) error) error {
	return election.New(c, key, opts...).Run(ctx, func(ctx context.Context, t election.Term) error { return lead(ctx, t.Number) })
}

// releasedFirst is a leader that resigns as soon as it is told to stop, while its work winds down.
func releasedFirst(ctx context.Context, c *locker.Client, key string, opts []locker.Option, lead func(context.Context, uint64) error) error {
	l, err := c.Lock(ctx, key, opts...)
	if err != nil {
		return err
	}
	leading, stop := context.WithCancel(l.Context())
	defer stop()
	over := make(chan error, 1)
	go func() { over <- lead(leading, l.Fence()) }()
	<-leading.Done()
	err = l.Unlock(context.WithoutCancel(ctx))
	return errors.Join(err, <-over)
}
