package goredis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/internal/verify/redistest"
	client "github.com/redis/go-redis/v9"
)

func mustEnter(t *testing.T, s *redisstore.Store, owner, token string, ttl time.Duration) int {
	t.Helper()
	r, err := s.Enter(t.Context(), "a", owner, token, ttl)
	if err != nil || !r.OK {
		t.Fatalf("Enter = %+v, %v", r, err)
	}
	return r.Holds
}

// A hash of another lock, as of Redisson, has fields that mean nothing to us: it is neither entered nor changed.
func TestAHashOfOtherSoftwareIsRefusedAndLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		for _, fields := range [][]any{
			{"8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1"},
			{"owner", "me", "hold:mine", "1"},
		} {
			if err := c.Del(t.Context(), "a").Err(); err != nil {
				t.Fatal(err)
			}
			if err := c.HSet(t.Context(), "a", fields...).Err(); err != nil {
				t.Fatal(err)
			}
			for _, ttl := range []time.Duration{0, time.Minute} {
				if ttl > 0 {
					c.PExpire(t.Context(), "a", ttl)
				}
				r, err := s.Enter(t.Context(), "a", "me", "mine", time.Hour)
				if err != nil || r.OK || r.Foreign != (ttl == 0) || r.Left > ttl || ttl > 0 && r.Left < ttl/2 {
					t.Errorf("Enter of %v with a ttl of %v = %+v, %v", fields, ttl, r, err)
				}
				if ok, err := s.Renew(t.Context(), "a", "mine", time.Hour); ok || err != nil {
					t.Errorf("Renew = %v, %v", ok, err)
				}
				if ok, err := s.Leave(t.Context(), "a", "mine"); ok || err != nil {
					t.Errorf("Leave = %v, %v", ok, err)
				}
				if n := c.HLen(t.Context(), "a").Val(); n != int64(len(fields)/2) || c.PTTL(t.Context(), "a").Val() > ttl {
					t.Errorf("%d fields, for %v", n, c.PTTL(t.Context(), "a").Val())
				}
			}
		}
	})
}

func TestANestedLockThatSomeonePersistedIsForeignToWhoComes(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		mustEnter(t, s, "me", "one", 20*time.Second)
		c.Persist(t.Context(), "a")
		for _, owner := range []string{"me", "you", ""} {
			if r, err := s.Enter(t.Context(), "a", owner, "two", 20*time.Second); err != nil || r.OK || !r.Foreign {
				t.Errorf("Enter as %q = %+v, %v", owner, r, err)
			}
		}
		if ok, err := s.Leave(t.Context(), "a", "one"); err != nil || !ok || c.Exists(t.Context(), "a").Val() != 0 {
			t.Errorf("Leave = %v, %v", ok, err)
		}
	})
}

func TestTheKeyLivesAsLongAsItsLastHold(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		near := func(want time.Duration) {
			t.Helper()
			if left := c.PTTL(t.Context(), "a").Val(); left > want+2*time.Millisecond || left < want-time.Minute {
				t.Errorf("the key lives for %v, want %v", left, want)
			}
		}
		mustEnter(t, s, "me", "long", time.Hour)
		if holds := mustEnter(t, s, "me", "short", 2*time.Minute); holds != 2 {
			t.Errorf("%d holds", holds)
		}
		near(time.Hour)
		if ok, err := s.Leave(t.Context(), "a", "long"); err != nil || !ok {
			t.Fatalf("Leave = %v, %v", ok, err)
		}
		near(2 * time.Minute)
		if ok, err := s.Renew(t.Context(), "a", "short", 30*time.Minute); err != nil || !ok {
			t.Fatalf("Renew = %v, %v", ok, err)
		}
		near(30 * time.Minute)
		if fields := c.HKeys(t.Context(), "a").Val(); len(fields) != 2 {
			t.Errorf("fields %q", fields)
		}
	})
}

func TestOnlyTheLastLeaveWakes(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, _ *client.Client) {
		woken := make(chan struct{}, 10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := s.Watch(ctx, "a", func() { woken <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		for _, token := range []string{"one", "two", "three"} {
			mustEnter(t, s, "me", token, 20*time.Second)
		}
		leave := func(token string) {
			if _, err := s.Leave(t.Context(), "a", token); err != nil {
				t.Fatal(err)
			}
		}
		for _, token := range []string{"two", "two", "one", "nobody"} {
			leave(token)
			throughWakes(t, s, "other") // messages come in order: then those of the Leave are here too
			if len(woken) > 0 {
				t.Fatalf("woken when %s has left", token)
			}
		}
		leave("three")
		await(t, "the wake", woken)
	})
}

// throughWakes returns when a wake has come through the connection for wakes.
func throughWakes(t *testing.T, s *redisstore.Store, key string) {
	t.Helper()
	woken := make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.Watch(ctx, key, func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetNX(ctx, key, "token", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	mustDelete(t, s, key, "token")
	await(t, "the wake of "+key, woken)
}

func TestLeaveWithoutPublishFreesTheLock(t *testing.T) {
	s := guard(t)
	s.grant("locks", "reset", "on", ">secret", "~*", "resetchannels", "+@all")
	store := goredis.New(dial(t, s.as("locks")))
	mustEnter(t, store, "me", "mine", 20*time.Second)
	ok, err := store.Leave(t.Context(), "a", "mine")
	if refused := (*redisstore.ReplyError)(nil); ok || !errors.As(err, &refused) || refused.Code() != "NOPERM" {
		t.Errorf("Leave = %v, %v", ok, err)
	}
	if got := s.do("EXISTS", "a"); got != int64(0) {
		t.Error("the lock is still there")
	}
}

// A script does all that stands before the line that is not permitted.
func TestEnterLeavesNothingBehindThatWouldNotEnd(t *testing.T) {
	s := guard(t)
	for _, less := range []string{"-pexpireat", "-hset", "-hgetall", "-time"} {
		s.grant("locks", "reset", "on", ">secret", "~*", "&*", "+@all", less)
		r, err := goredis.New(dial(t, s.as("locks"))).Enter(t.Context(), "a", "me", "mine", 20*time.Second)
		if r.OK || !isPermanent(err, "NOPERM") || exists(t, s.Server, "a") {
			t.Errorf("with %s Enter = %+v, %v; the key exists: %v", less, r, err, exists(t, s.Server, "a"))
		}
	}
}

func TestEnterAndLeaveAreSentOnceAndRenewMayBeAgain(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	s := goredis.New(dial(t, &client.Options{Addr: proxy.Addr(), MaxRetries: 3}))
	mustEnter(t, s, "me", "mine", 20*time.Second)
	proxy.Add(redistest.Rule{Fault: redistest.CutRequest, Commands: []string{"EVALSHA"}, Times: -1})
	count := func(call func() error) int {
		before := proxy.Count("EVALSHA")
		if err := call(); err == nil || errors.Is(err, backends.ErrWrongType) {
			t.Errorf("error %v", err)
		}
		return proxy.Count("EVALSHA") - before
	}
	if n := count(func() error { _, err := s.Enter(t.Context(), "a", "me", "other", 20*time.Second); return err }); n != 1 {
		t.Errorf("Enter was sent %d times", n)
	}
	if n := count(func() error { _, err := s.Leave(t.Context(), "a", "mine"); return err }); n != 1 {
		t.Errorf("Leave was sent %d times", n)
	}
	if n := count(func() error { _, err := s.Renew(t.Context(), "a", "mine", 20*time.Second); return err }); n < 2 {
		t.Errorf("Renew was sent %d times: it may be, and go-redis does", n)
	}
}
