package fenced_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/single"
	"github.com/redis/go-redis/v9"
)

const long = 10 * time.Minute // a ttl that does not end during a test

// numbered acquires and releases the lock. The number must be greater than after.
func numbered(t *testing.T, c *locker.Client, after uint64) uint64 {
	t.Helper()
	l, err := c.Lock(t.Context(), "key", locker.WithTTL(long))
	if err != nil {
		t.Fatal(err)
	}
	if l.Fence() <= after {
		t.Errorf("fence %d after %d", l.Fence(), after)
	}
	if l.Fence() != l.Lease().Fence || l.Fence() >= 1<<53 {
		t.Errorf("fence %d, the lease has %d; want them equal and under 2^53", l.Fence(), l.Lease().Fence)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock = %v", err)
	}
	return l.Fence()
}

func TestNumbersRiseWithEveryGrantOfWhicheverClient(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		one, another := locker.New(fenced.New(store)), locker.New(fenced.New(store))
		var last uint64
		for range 20 {
			last = numbered(t, one, last)
			last = numbered(t, another, last)
		}
	})
}

func TestNumbersRiseWhenALeaseRunsOut(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, outside beneath.Outside) {
		lease, err := fenced.New(store).Acquire(t.Context(), contract.Request{Key: "key", Token: "dead", TTL: long})
		if err != nil {
			t.Fatal(err)
		}
		outside.Expire("key")
		numbered(t, locker.New(fenced.New(store)), lease.Fence)
	})
}

func TestARetransmissionAndAnExtensionKeepTheNumber(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		l := fenced.New(store)
		req := contract.Request{Key: "key", Token: "token", TTL: long}
		first, err := l.Acquire(t.Context(), req)
		if err != nil || first.Fence == 0 {
			t.Fatal(first, err)
		}
		for range 3 {
			if _, err := l.Acquire(t.Context(), contract.Request{Key: "key", Token: "theirs", TTL: long}); !errors.Is(err, locker.ErrHeld) {
				t.Errorf("Acquire by someone else = %v", err)
			}
			again, err := l.Acquire(t.Context(), req)
			if err != nil || again.Fence != first.Fence {
				t.Errorf("a retransmission = %v with fence %d; want %d", err, again.Fence, first.Fence)
			}
			extended, err := l.Extend(t.Context(), again, long)
			if err != nil || extended.Fence != first.Fence {
				t.Errorf("Extend = %v with fence %d; want %d", err, extended.Fence, first.Fence)
			}
		}
		if err := l.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		// The same token again, which only a test would use: the lock was free in between.
		if next, err := l.Acquire(t.Context(), req); err != nil || next.Fence <= first.Fence {
			t.Errorf("the next grant = %v with fence %d after %d", err, next.Fence, first.Fence)
		}
	})
}

func TestSingleAndFencedExcludeEachOther(t *testing.T) {
	beneath.Each(t, func(t *testing.T, store beneath.Store, _ beneath.Outside) {
		with, without := locker.New(fenced.New(store)), locker.New(single.New(store))
		last := numbered(t, with, 0)
		for _, c := range [][2]*locker.Client{{with, without}, {without, with}} {
			l, err := c[0].TryLock(t.Context(), "key", locker.WithTTL(long))
			if err != nil {
				t.Fatal(err)
			}
			if (l.Fence() == 0) != (c[0] == without) {
				t.Errorf("fence %d", l.Fence())
			}
			if _, err := c[1].TryLock(t.Context(), "key"); !errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrForeignKey) {
				t.Errorf("TryLock of the other strategy = %v; want it held", err)
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			last = numbered(t, with, last)
		}
	})
}

func TestNumbersRiseWhenTheServerForgetsThem(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	c := locker.New(fenced.New(goredis.New(client, beneath.Long)))
	var last uint64
	for name, forget := range map[string]func(){
		"a restart": func() {
			server.Kill()
			server.Restart()
		},
		"FLUSHALL": func() {
			if _, err := server.Do("FLUSHALL"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for range 10 {
			last = numbered(t, c, last)
		}
		forget()
		if n, err := server.Do("DBSIZE"); n != int64(0) {
			t.Fatalf("%s left %v keys: %v", name, n, err)
		}
		last = numbered(t, c, last)
	}
}
