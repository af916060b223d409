package interop_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
)

func TestShedLock(t *testing.T) {
	interoperates(t, 1, 4, onOneServer, func(t *testing.T, ss servers) theirs {
		return shedLocks{shedLock{ss.clients(t)[0]}}
	})
}

// A job that is done keeps the key until the end of lockAtLeastFor, as locker.WithMinHold does.
func TestShedLockAndOursKeepAKeyThatIsDoneForItsLeastTime(t *testing.T) {
	for name, open := range onOneServer {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ss := servers{redistest.Start(t)}
			ours, theirs := locker.New(open(t, ss)), shedLock{ss.clients(t)[0]}
			t.Run("a job of theirs that is done keeps us out", func(t *testing.T) {
				key := shedKey("theirs")
				value, ok, err := theirs.lock(t.Context(), key, long)
				if !ok || err != nil {
					t.Fatalf("lock = %v, %v", ok, err)
				}
				if ok, err := theirs.unlock(t.Context(), key, value, long/2); !ok || err != nil {
					t.Errorf("unlock = %v, %v", ok, err)
				}
				_, err = ours.TryLock(t.Context(), key)
				wantHeld(t, err, long/2)
			})
			t.Run("a job of ours that is done keeps them out", func(t *testing.T) {
				key := shedKey("ours")
				l, err := ours.TryLock(t.Context(), key, locker.WithMinHold(long))
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Errorf("Unlock = %v", err)
				}
				if _, ok, err := theirs.lock(t.Context(), key, long); ok || err != nil {
					t.Errorf("lock = %v, %v", ok, err)
				}
				if left := ss.left(t, key); left <= 0 || left > long+long/10 {
					t.Errorf("the key lives for %v more", left)
				}
			})
		})
	}
}

// shedLock sends what ShedLock sends to Redis, as read in its InternalRedisLockProvider.java
// (github.com/lukas-krecan/ShedLock, providers/redis/shedlock-support-redis):
//
//	lock      SET job-lock:environment:name value NX PX lockAtMostFor
//	extend    if GET key is the value: PEXPIRE key lockAtMostFor
//	unlock    if GET key is the value: DEL key, or PEXPIRE key to what is left of lockAtLeastFor
//
// The value has the time, the host and a UUID. The last two commands are scripts. With safeUpdate
// off, ShedLock sends DEL and SET XX without a look at the value; those are not played here: they
// take the lock of any other holder, of ShedLock too.
type shedLock struct{ client *redis.Client }

// shedKey is the key of a job by default: "job-lock" and "default" are options of ShedLock.
func shedKey(job string) string { return "job-lock:default:" + job }

var shedIfOwner = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
elseif ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)

func (s shedLock) lock(ctx context.Context, key string, atMost time.Duration) (value string, ok bool, err error) {
	value = fmt.Sprintf("ADDED:%s@host:%s", time.Now().UTC().Format(time.RFC3339Nano), contract.NewToken())
	err = s.client.Do(ctx, "SET", key, value, "NX", "PX", atMost.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return value, err == nil, err
}

func (s shedLock) extend(ctx context.Context, key, value string, atMost time.Duration) (bool, error) {
	return shedIfOwner.Run(ctx, s.client, []string{key}, value, atMost.Milliseconds()).Bool()
}

func (s shedLock) unlock(ctx context.Context, key, value string, atLeast time.Duration) (bool, error) {
	return shedIfOwner.Run(ctx, s.client, []string{key}, value, atLeast.Milliseconds()).Bool()
}

// shedLocks waits as a scheduler does: by trying again. ShedLock itself never waits.
type shedLocks struct{ shedLock }

func (s shedLocks) Acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (theirLock, error) {
	for {
		value, ok, err := s.lock(ctx, key, ttl)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return shedHold{s.shedLock, key, value}, nil
		case !wait:
			return nil, errNotTaken
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (shedLocks) Refused(err error) bool { return errors.Is(err, errNotTaken) }
func (shedLocks) Lost(err error) bool    { return errors.Is(err, errNotOurs) }

type shedHold struct {
	shedLock
	key, value string
}

func (h shedHold) Extend(ctx context.Context, ttl time.Duration) error {
	return done(h.extend(ctx, h.key, h.value, ttl))
}

func (h shedHold) Release(ctx context.Context) error {
	return done(h.unlock(ctx, h.key, h.value, 0))
}
