package interop_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/redis/go-redis/v9"
)

// permits is the limit of both sides.
const permits = 3

// TestMadelsonSemaphore: a semaphore of madelson/DistributedLock and ours have one layout, so they
// count each other's permits on one key.
func TestMadelsonSemaphore(t *testing.T) {
	ss := servers{redistest.Start(t)}
	theirs := madelson{ss.clients(t)[0]}
	for _, s := range []struct {
		sentence string
		check    func(t *testing.T, b besideMadelson, key string)
	}{
		{"their permits count for us", func(t *testing.T, b besideMadelson, key string) {
			b.take(t, key, long)
			b.take(t, key, long)
			l := b.lock(t, key, long)
			if n := l.Lease().Holds; n != permits {
				t.Errorf("our permit is number %d, want %d", n, permits)
			}
			b.wantFull(t, key, long)
		}},
		{"our permits count for them", func(t *testing.T, b besideMadelson, key string) {
			b.lock(t, key, long)
			b.lock(t, key, long)
			b.take(t, key, long)
			b.wantFull(t, key, long)
		}},
		{"a permit that they release is ours", func(t *testing.T, b besideMadelson, key string) {
			token := b.fill(t, key, long)
			asked := ss.asked(t, key)
			got := make(chan struct{})
			go func() {
				defer close(got)
				if _, err := b.client.Lock(t.Context(), key); err != nil {
					t.Errorf("Lock = %v", err)
				}
			}()
			wait(t, "we ask for it", asked)
			if ok, err := b.theirs.release(t.Context(), key, token); !ok || err != nil {
				t.Errorf("their release = %v, %v", ok, err)
			}
			wait(t, "we get it", got)
		}},
		{"a permit that we release is theirs", func(t *testing.T, b besideMadelson, key string) {
			l := b.lock(t, key, long)
			b.fill(t, key, long)
			b.wantFull(t, key, long)
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			b.take(t, key, long)
		}},
		{"a permit of theirs that has run out is ours, and not before", func(t *testing.T, b besideMadelson, key string) {
			b.lock(t, key, long)
			b.lock(t, key, long)
			start := time.Now()
			b.take(t, key, short)
			b.lockAfter(t, key, start)
		}},
		{"a permit of ours that has run out is theirs, and not before", func(t *testing.T, b besideMadelson, key string) {
			b.take(t, key, long)
			b.take(t, key, long)
			start := time.Now()
			b.acquire(t, key, short)
			for {
				_, ok, err := b.theirs.acquire(t.Context(), key, long)
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if early := short - time.Since(start); early > 5*time.Millisecond {
				t.Errorf("they have it %v too early", early)
			}
		}},
		{"a permit that they extend keeps us out, and no other lives by it", func(t *testing.T, b besideMadelson, key string) {
			start := time.Now()
			b.acquire(t, key, short)
			b.acquire(t, key, long)
			token := b.take(t, key, short)
			if ok, err := b.theirs.extend(t.Context(), key, token, long); !ok || err != nil {
				t.Fatalf("their extension = %v, %v", ok, err)
			}
			b.lockAfter(t, key, start)
			b.wantFull(t, key, long)
		}},
		{"a permit that we extend keeps them out, and no other lives by it", func(t *testing.T, b besideMadelson, key string) {
			start := time.Now()
			b.take(t, key, short)
			b.take(t, key, long)
			if _, err := b.ours.Extend(t.Context(), b.acquire(t, key, short), long); err != nil {
				t.Fatal(err)
			}
			b.lockAfter(t, key, start)
			b.wantFull(t, key, long)
		}},
		{"a short permit of one side does not end the long ones of the other", func(t *testing.T, b besideMadelson, key string) {
			b.acquire(t, key, long)
			b.take(t, key, 100*time.Millisecond)
			if left := ss.left(t, key); left < long/2 {
				t.Errorf("the key lives for %v more, beside a permit of %v", left, long)
			}
			other := key + "/other"
			b.take(t, other, long)
			if err := b.ours.Release(t.Context(), b.acquire(t, other, 100*time.Millisecond)); err != nil {
				t.Error(err)
			}
			if left := ss.left(t, other); left < long/2 {
				t.Errorf("the key lives for %v more, beside a permit of %v", left, long)
			}
		}},
		{"what either has lost it neither extends nor releases", func(t *testing.T, b besideMadelson, key string) {
			lease, token := b.acquire(t, key, long), b.take(t, key, long)
			ss.do(t, "DEL", key)
			b.lock(t, key, long)
			if ok, err := b.theirs.extend(t.Context(), key, token, long); ok || err != nil {
				t.Errorf("their extension = %v, %v", ok, err)
			}
			if ok, err := b.theirs.release(t.Context(), key, token); ok || err != nil {
				t.Errorf("their release = %v, %v", ok, err)
			}
			if _, err := b.ours.Extend(t.Context(), lease, long); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Extend = %v", err)
			}
			if err := b.ours.Release(t.Context(), lease); !errors.Is(err, locker.ErrLost) {
				t.Errorf("Release = %v", err)
			}
			if n := ss.do(t, "ZCARD", key)[0]; n != int64(1) {
				t.Errorf("%v permits, want that of the new holder", n)
			}
		}},
		{"a permit that they take while it is reserved for us is theirs alone", func(t *testing.T, b besideMadelson, key string) {
			store := goredis.New(ss.clients(t)[0], hour)
			ours := b.acquire(t, key, long)
			b.fill(t, key, long)
			if err := store.WatchQueued(t.Context(), key, "waiter", func() {}); err != nil {
				t.Fatal(err)
			}
			ask := func() backends.Result {
				r, err := store.Enter(t.Context(), key, "token", long, backends.Admission{Limit: permits, Turn: backends.Turn{Waiter: "waiter"}})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			if r := ask(); r.OK || r.Position != 1 {
				t.Fatalf("Enter = %+v, want the first position", r)
			}
			if err := b.ours.Release(t.Context(), ours); err != nil {
				t.Fatal(err)
			}
			b.take(t, key, long) // they know of no reservation
			if r := ask(); r.OK || r.Holds != permits {
				t.Errorf("Enter = %+v, want it held by %d", r, permits)
			}
		}},
		{"many of both have no more permits than the limit", contendForPermits},
	} {
		t.Run(s.sentence, func(t *testing.T) {
			t.Parallel()
			ours := semaphore.New(goredis.New(ss.clients(t)[0], hour), permits)
			s.check(t, besideMadelson{ours, locker.New(ours), theirs}, s.sentence)
		})
	}
}

// besideMadelson is both sides, on one server.
type besideMadelson struct {
	ours   locker.Locker
	client *locker.Client
	theirs madelson
}

func (b besideMadelson) take(t *testing.T, key string, expiry time.Duration) (token string) {
	t.Helper()
	token, ok, err := b.theirs.acquire(t.Context(), key, expiry)
	if !ok || err != nil {
		t.Fatalf("their permit = %v, %v", ok, err)
	}
	return token
}

// fill takes permits their way until none is left, and returns the last one.
func (b besideMadelson) fill(t *testing.T, key string, expiry time.Duration) (last string) {
	t.Helper()
	for {
		token, ok, err := b.theirs.acquire(t.Context(), key, expiry)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return last
		}
		last = token
	}
}

// lock takes a permit our way and keeps it alive.
func (b besideMadelson) lock(t *testing.T, key string, ttl time.Duration) *locker.Lock {
	t.Helper()
	l, err := b.client.TryLock(t.Context(), key, locker.WithTTL(ttl))
	if err != nil {
		t.Fatalf("TryLock = %v", err)
	}
	return l
}

// acquire takes a permit our way, for ttl and no longer.
func (b besideMadelson) acquire(t *testing.T, key string, ttl time.Duration) contract.Lease {
	t.Helper()
	return pair{ours: b.ours}.acquire(t, key, ttl)
}

// lockAfter waits for our permit, which must not be granted before a permit that began after start
// has run out.
func (b besideMadelson) lockAfter(t *testing.T, key string, start time.Time) {
	t.Helper()
	if _, err := b.client.Lock(t.Context(), key); err != nil {
		t.Fatalf("Lock = %v", err)
	}
	// A server cuts its time to milliseconds.
	if early := short - time.Since(start); early > 5*time.Millisecond {
		t.Errorf("we have it %v too early", early)
	}
}

// wantFull checks that neither side has a permit left.
func (b besideMadelson) wantFull(t *testing.T, key string, ttl time.Duration) {
	t.Helper()
	_, err := b.client.TryLock(t.Context(), key)
	wantHeld(t, err, ttl+time.Millisecond) // the end of the last permit counts in whole milliseconds
	var held *locker.HeldError
	if errors.As(err, &held) && held.Holds != permits {
		t.Errorf("we count %d permits, want %d", held.Holds, permits)
	}
	if _, ok, err := b.theirs.acquire(t.Context(), key, ttl); ok || err != nil {
		t.Errorf("their permit = %v, %v", ok, err)
	}
}

func contendForPermits(t *testing.T, b besideMadelson, key string) {
	const workers, rounds = 5, 10
	var all sync.WaitGroup
	var inside, most atomic.Int32
	work := func() {
		for n := inside.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		time.Sleep(5 * time.Millisecond)
		inside.Add(-1)
	}
	for range workers {
		all.Go(func() {
			client := locker.New(b.ours, locker.WithBackoff(locker.Exponential(5*time.Millisecond, 40*time.Millisecond)))
			for range rounds {
				if err := client.Do(t.Context(), key, func(context.Context, *locker.Lock) error {
					work()
					return nil
				}); err != nil {
					t.Errorf("Do = %v", err)
				}
			}
		})
		all.Go(func() {
			for done := 0; done < rounds; {
				token, ok, err := b.theirs.acquire(t.Context(), key, long)
				if err != nil {
					t.Error(err)
					return
				}
				if !ok {
					time.Sleep(10 * time.Millisecond)
					continue
				}
				work()
				done++
				if ok, err := b.theirs.release(t.Context(), key, token); !ok || err != nil {
					t.Errorf("their release = %v, %v", ok, err)
				}
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > permits {
		t.Errorf("%d had a permit at once, want %d at most", n, permits)
	}
}

// madelson sends what the semaphore of madelson/DistributedLock sends to Redis, as read in its
// RedisSemaphorePrimitive.cs (github.com/madelson/DistributedLock):
//
//	acquire   a script: TIME, ZREMRANGEBYSCORE key -inf now, and with fewer members than the limit
//	          ZADD key now+expiry id; the key lives for 3 times the expiry at least
//	extend    a script: TIME, ZADD key XX CH now+expiry id; the key lives as long
//	release   ZREM key id
//
// now has milliseconds and their fractions.
type madelson struct{ client *redis.Client }

// In each script keep makes the key live for so many ms at least; it never shortens its life.
const (
	madelsonNow = `
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local function keep(ms)
  if redis.call('PTTL', KEYS[1]) < tonumber(ms) then
    redis.call('PEXPIRE', KEYS[1], ms)
  end
end
`
	madelsonEnter = madelsonNow + `
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
keep(ARGV[3])
return 1`
	madelsonRenew = madelsonNow + `
local changed = redis.call('ZADD', KEYS[1], 'XX', 'CH', now + ARGV[2], ARGV[1])
keep(ARGV[3])
return changed`
)

var madelsonAcquire, madelsonExtend = redis.NewScript(madelsonEnter), redis.NewScript(madelsonRenew)

func (m madelson) acquire(ctx context.Context, key string, expiry time.Duration) (id string, ok bool, err error) {
	id = contract.NewToken()
	ms := expiry.Milliseconds()
	ok, err = madelsonAcquire.Run(ctx, m.client, []string{key}, id, ms, 3*ms, permits).Bool()
	return id, ok, err
}

func (m madelson) extend(ctx context.Context, key, id string, expiry time.Duration) (bool, error) {
	ms := expiry.Milliseconds()
	return madelsonExtend.Run(ctx, m.client, []string{key}, id, ms, 3*ms).Bool()
}

func (m madelson) release(ctx context.Context, key, id string) (bool, error) {
	n, err := m.client.ZRem(ctx, key, id).Result()
	return n == 1, err
}
