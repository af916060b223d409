package goredis_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	client "github.com/redis/go-redis/v9"
)

func mustEnter(t *testing.T, s *redisstore.Store, owner, token string, ttl time.Duration) int {
	t.Helper()
	r, err := s.Enter(t.Context(), "a", token, ttl, backends.Admission{Group: owner})
	if err != nil || !r.OK {
		t.Fatalf("Enter = %+v, %v", r, err)
	}
	return r.Holds
}

// The members of a sorted set of other software mean nothing to us: it is neither entered nor
// changed.
func TestASortedSetOfOtherSoftwareIsHeldAndLeftAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		for _, members := range [][]client.Z{
			{{Score: 1, Member: "mine"}},
			{{Score: -1, Member: "other"}, {Score: math.Inf(1), Member: "\x00group:me"}},
		} {
			if err := c.Del(t.Context(), "a").Err(); err != nil {
				t.Fatal(err)
			}
			if err := c.ZAdd(t.Context(), "a", members...).Err(); err != nil {
				t.Fatal(err)
			}
			for _, ttl := range []time.Duration{0, time.Minute} {
				if ttl > 0 {
					c.PExpire(t.Context(), "a", ttl)
				}
				r, err := s.Enter(t.Context(), "a", "mine", time.Hour, backends.Admission{Group: "me"})
				if err != nil || r.OK || r.Foreign != (ttl == 0) || r.Left > ttl || ttl > 0 && r.Left < ttl/2 {
					t.Errorf("Enter of %v with a ttl of %v = %+v, %v", members, ttl, r, err)
				}
				if ok, err := s.Renew(t.Context(), "a", "mine", time.Hour); ok || err != nil {
					t.Errorf("Renew = %v, %v", ok, err)
				}
				if ok, err := s.Leave(t.Context(), "a", "mine"); ok || err != nil {
					t.Errorf("Leave = %v, %v", ok, err)
				}
				if n := c.ZCard(t.Context(), "a").Val(); n != int64(len(members)) || c.PTTL(t.Context(), "a").Val() > ttl {
					t.Errorf("%d members, for %v", n, c.PTTL(t.Context(), "a").Val())
				}
			}
		}
	})
}

func TestASharedLockThatSomeonePersistedIsForeignToWhoComes(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		mustEnter(t, s, "me", "one", 20*time.Second)
		c.Persist(t.Context(), "a")
		for _, owner := range []string{"me", "you", ""} {
			if r, err := s.Enter(t.Context(), "a", "two", 20*time.Second, backends.Admission{Group: owner}); err != nil || r.OK || !r.Foreign {
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
		if members := c.ZRange(t.Context(), "a", 0, -1).Val(); len(members) != 2 {
			t.Errorf("members %q", members)
		}
	})
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
	for _, less := range []string{"-pexpireat", "-zadd", "-zrange", "-time"} {
		s.grant("locks", "reset", "on", ">secret", "~*", "&*", "+@all", less)
		r, err := goredis.New(dial(t, s.as("locks"))).Enter(t.Context(), "a", "mine", 20*time.Second, backends.Admission{Group: "me"})
		if r.OK || !isPermanent(err, "NOPERM") || exists(t, s.Server, "a") {
			t.Errorf("with %s Enter = %+v, %v; the key exists: %v", less, r, err, exists(t, s.Server, "a"))
		}
	}
}

// What has ended stays in a sorted set without expiry, which may be no lock. If it is one whose expiry
// somebody has removed, its holds are renewed and end as before, and what has ended does not come back.
func TestAHoldThatHasEndedIsNoneInALockWithoutExpiry(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		lives, ended := float64(time.Now().Add(time.Hour).UnixMilli()), float64(time.Now().Add(-time.Hour).UnixMilli())
		prepare := func() {
			c.Del(t.Context(), "key")
			if err := c.ZAdd(t.Context(), "key", client.Z{Score: lives, Member: "lives"}, client.Z{Score: ended, Member: "ended"}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for name, call := range map[string]func(token string) (bool, error){
			"Renew": func(token string) (bool, error) { return s.Renew(t.Context(), "key", token, 20*time.Second) },
			"Leave": func(token string) (bool, error) { return s.Leave(t.Context(), "key", token) },
			"TransferHold": func(token string) (bool, error) {
				r, err := s.TransferHold(t.Context(), "key", token, "new", 20*time.Second, "", false)
				return r.OK, err
			},
		} {
			prepare()
			if ok, err := call("ended"); err != nil || ok {
				t.Errorf("%s of a hold that has ended = %v, %v; want false", name, ok, err)
			}
			if n := c.ZCard(t.Context(), "key").Val(); n != 2 {
				t.Errorf("%s of a hold that has ended leaves %d members; want 2", name, n)
			}
			if ok, err := call("lives"); err != nil || !ok {
				t.Errorf("%s = %v, %v; want true", name, ok, err)
			}
			if left := c.PTTL(t.Context(), "key").Val(); left == -1 {
				t.Errorf("after %s the lock has no expiry", name)
			}
		}
	})
}
