package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

func TestRedsync(t *testing.T) { interoperates(t, 1, 4, onOneServer, redsyncs) }

func TestRedsyncOfFive(t *testing.T) { interoperates(t, 5, 3, onFiveServers, redsyncs) }

func redsyncs(t *testing.T, ss servers) theirs {
	var pools []redis.Pool
	for _, client := range ss.clients(t) {
		pools = append(pools, goredis.NewPool(client))
	}
	return redsyncLocks{redsync.New(pools...)}
}

// redsyncLocks is github.com/go-redsync/redsync.
type redsyncLocks struct{ redsync *redsync.Redsync }

func (r redsyncLocks) Acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (theirLock, error) {
	tries := 1
	if wait {
		tries = 10_000
	}
	m := r.redsync.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(tries), redsync.WithRetryDelay(20*time.Millisecond),
		redsync.WithTimeoutFactor(1)) // of the expiry; it is for servers that fail, not for a machine that is slow
	return redsyncLock{m, r.redsync}, m.LockContext(ctx)
}

func (redsyncLocks) Refused(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken)
}

func (r redsyncLocks) Lost(err error) bool {
	return r.Refused(err) || errors.Is(err, redsync.ErrLockAlreadyExpired)
}

type redsyncLock struct {
	*redsync.Mutex
	redsync *redsync.Redsync
}

// Extend goes through a second mutex, since a mutex extends by the expiry that it was made with.
func (l redsyncLock) Extend(ctx context.Context, ttl time.Duration) error {
	m := l.redsync.NewMutex(l.Name(), redsync.WithExpiry(ttl), redsync.WithValue(l.Value()))
	return answer(m.ExtendContext(ctx))
}

func (l redsyncLock) Release(ctx context.Context) error { return answer(l.UnlockContext(ctx)) }

func answer(ok bool, err error) error {
	if !ok && err == nil {
		return errors.New("redsync: not done, and no error says why")
	}
	return err
}
