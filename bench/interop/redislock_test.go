package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
)

func TestRedislock(t *testing.T) {
	interoperates(t, 1, 4, onOneServer, func(t *testing.T, ss servers) theirs {
		return redislocks{redislock.New(ss.clients(t)[0])}
	})
}

// Their grants have no number, and do not set ours back.
func TestOurNumbersGrowAcrossGrantsOfTheirs(t *testing.T) {
	client := servers{redistest.Start(t)}.clients(t)[0]
	locks, theirs := locker.New(fenced.New(goredis.New(client))), redislock.New(client)
	last := uint64(0)
	for range 20 {
		err := locks.Do(t.Context(), "key", func(_ context.Context, l *locker.Lock) error {
			if l.Fence() <= last {
				t.Errorf("fence %d came after %d", l.Fence(), last)
			}
			last = l.Fence()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := theirs.Obtain(t.Context(), "key", long, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// redislocks is github.com/bsm/redislock.
type redislocks struct{ client *redislock.Client }

func (r redislocks) Acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (theirLock, error) {
	o := &redislock.Options{RetryStrategy: redislock.NoRetry()}
	if wait {
		o.RetryStrategy = redislock.LinearBackoff(20 * time.Millisecond)
	}
	l, err := r.client.Obtain(ctx, key, ttl, o)
	return redislockLock{l}, err
}

func (redislocks) Refused(err error) bool { return errors.Is(err, redislock.ErrNotObtained) }

// Lost: Refresh and Release have different words for it.
func (redislocks) Lost(err error) bool {
	return errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, redislock.ErrLockNotHeld)
}

type redislockLock struct{ lock *redislock.Lock }

func (l redislockLock) Extend(ctx context.Context, ttl time.Duration) error {
	return l.lock.Refresh(ctx, ttl, nil)
}

func (l redislockLock) Release(ctx context.Context) error { return l.lock.Release(ctx) }
