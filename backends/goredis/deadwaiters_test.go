package goredis_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/redis/go-redis/v9"
)

const deadWaiters = 500

// TestAReleaseDoesLittleForManyWaitersThatAreLate: each late waiter has had a reservation and makes no
// attempt. A release looks at a few of them only, and the lock goes to the waiter that lives.
func TestAReleaseDoesLittleForManyWaitersThatAreLate(t *testing.T) {
	server := redistest.Start(t)
	conn := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { conn.Close() })
	s := goredis.New(conn)
	mustHold(t, s)
	for i := range deadWaiters {
		mustWait(t, s, fmt.Sprint("dead", i))
	}
	letBeLate(t, conn)
	mustWait(t, s, "live")
	if n := commandsOf(t, server, func() { release(t, s, "before") }); n > 60 {
		t.Errorf("a release sends and runs %d commands, with %d late waiters; want 60 at most", n, deadWaiters)
	}
	turn := backends.Turn{Waiter: "live", InOrder: true}
	if r, err := s.SetNXQueued(t.Context(), "key", "live", 20*time.Second, turn); err != nil || !r.OK {
		t.Fatalf("the live waiter gets %+v, %v", r, err)
	}
	if n := commandsOf(t, server, func() { release(t, s, "live") }); n > 60 { // eight late ones are told that the key is free
		t.Errorf("a release with nobody in line sends and runs %d commands, with %d late waiters; want 60 at most", n, deadWaiters)
	}
}

// TestAReleasePassesWaitersOfADeadProcessOnce: nobody hears their messages, so the first release takes
// them out of the queue, with a few commands each, and the next one has none of them.
func TestAReleasePassesWaitersOfADeadProcessOnce(t *testing.T) {
	server := redistest.Start(t)
	conn, dead := redis.NewClient(&redis.Options{Addr: server.Addr()}), redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { conn.Close() })
	s, gone := goredis.New(conn), goredis.New(dead)
	mustHold(t, s)
	for i := range deadWaiters {
		mustWait(t, gone, fmt.Sprint("dead", i))
	}
	woken := mustWait(t, s, "live")
	dead.Close()
	if _, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil {
		t.Fatal(err)
	}
	<-woken // its store has subscribed again
	first := commandsOf(t, server, func() { release(t, s, "before") })
	turn := backends.Turn{Waiter: "live", InOrder: true}
	if r, err := s.SetNXQueued(t.Context(), "key", "live", 20*time.Second, turn); err != nil || !r.OK {
		t.Fatalf("the live waiter gets %+v, %v", r, err)
	}
	next := commandsOf(t, server, func() { release(t, s, "live") })
	if first > 5*deadWaiters || next > 40 {
		t.Errorf("the first release sends and runs %d commands, the next %d; want 5 for each of %d dead waiters, and then 40 at most", first, next, deadWaiters)
	}
}

// The only waiter in a queue is given a reservation, and dies before it makes its attempt. If nobody wants
// this lock again, no script runs that would remove the waiter.
func TestEveryKeyEndsAfterTheOnlyWaiterHasDied(t *testing.T) {
	server := redistest.Start(t)
	conn := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { conn.Close() })
	s := goredis.New(conn)
	wantEnds := func(after string) {
		t.Helper()
		keys, err := conn.Keys(t.Context(), "*").Result()
		if err != nil || !slices.ContainsFunc(keys, func(key string) bool { return strings.HasSuffix(key, "queue") }) {
			t.Fatalf("after %s there are the keys %q (%v); want the queue among them", after, keys, err)
		}
		for _, key := range keys {
			if ttl, err := conn.PTTL(t.Context(), key).Result(); err != nil || ttl == -1 { // -2: it has just ended
				t.Errorf("after %s the key %q stays for ever (PTTL %v, %v)", after, key, ttl, err)
			}
		}
	}

	mustHold(t, s)
	mustWait(t, s, "waiter")
	release(t, s, "before")
	wantEnds("a release")

	if err := conn.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s)
	ctx, leave := context.WithCancel(t.Context())
	if err := s.WatchQueued(ctx, "key", "first", func() {}); err != nil {
		t.Fatal(err)
	}
	turn := backends.Turn{Waiter: "first", InOrder: true, RoundTrip: time.Second} // the reservation is long
	if r, err := s.SetNXQueued(t.Context(), "key", "first", 20*time.Second, turn); err != nil || r.Position != 1 {
		t.Fatalf("SetNXQueued of a waiter = %+v, %v", r, err)
	}
	woken := mustWait(t, s, "second")
	release(t, s, "before")
	leave() // the first has the reservation
	<-woken
	wantEnds("the waiter with the reservation has left")

	if err := conn.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	one := backends.Admission{Group: "all", Limit: 1}
	if r, err := s.Enter(t.Context(), "key", "before", 20*time.Second, one); err != nil || !r.OK {
		t.Fatalf("Enter = %+v, %v", r, err)
	}
	if err := s.WatchQueued(t.Context(), "key", "other", func() {}); err != nil {
		t.Fatal(err)
	}
	one.Turn = backends.Turn{Waiter: "other", InOrder: true}
	if r, err := s.Enter(t.Context(), "key", "waiting", 20*time.Second, one); err != nil || r.OK || r.Position != 1 {
		t.Fatalf("Enter of a waiter = %+v, %v", r, err)
	}
	if ok, err := s.Leave(t.Context(), "key", "before"); err != nil || !ok {
		t.Fatalf("Leave = %v, %v", ok, err)
	}
	wantEnds("a hold has left")
}

func mustHold(t *testing.T, s *redisstore.Store) {
	t.Helper()
	if r, err := s.SetNX(t.Context(), "key", "before", 20*time.Second); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
}

func mustWait(t *testing.T, s *redisstore.Store, waiter string) (woken chan struct{}) {
	t.Helper()
	woken = make(chan struct{}, 100)
	if err := s.WatchQueued(t.Context(), "key", waiter, func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	turn := backends.Turn{Waiter: waiter, InOrder: true}
	if r, err := s.SetNXQueued(t.Context(), "key", waiter, 20*time.Second, turn); err != nil || r.OK || r.Position == 0 {
		t.Fatalf("SetNXQueued of waiter %s = %+v, %v", waiter, r, err)
	}
	return woken
}

func release(t *testing.T, s *redisstore.Store, token string) {
	t.Helper()
	if ok, err := s.DeleteIf(t.Context(), "key", token); err != nil || !ok {
		t.Fatalf("DeleteIf of %s = %v, %v", token, ok, err)
	}
}

// letBeLate gives all waiters the scores of late ones: see score.lua. A reservation for each would take
// 100 s.
func letBeLate(t *testing.T, c *redis.Client) {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if c.Type(t.Context(), key).Val() != "zset" {
			continue
		}
		all, err := c.ZRangeWithScores(t.Context(), key, 0, -1).Result()
		if err != nil || len(all) != deadWaiters {
			t.Fatalf("%d waiters, %v", len(all), err)
		}
		for i := range all {
			all[i].Score = (math.Floor(all[i].Score/4096) - 1<<30) * (1 << 22)
		}
		if err := c.ZAdd(t.Context(), key, all...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A clock that goes back makes nobody late for longer. What was noted in the future is noted anew.
func TestALateWaiterKeepsItsPositionWhenTheClockGoesBack(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *redis.Client) {
		const span, line = 1 << 22, "{a}:\x00queue"
		for ticket, ahead := range map[float64]int64{1: 5, 2: 3600, 3: -5, 4: -40} {
			noted := (time.Now().Unix() + ahead) % span
			if err := c.ZAdd(t.Context(), line, redis.Z{Score: (ticket-1<<30)*span + float64(noted), Member: fmt.Sprint(ahead, "@channel")}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := s.SetNXQueued(t.Context(), "a", "token", 20*time.Second, backends.Turn{InOrder: true}); err != nil || !r.OK {
			t.Fatalf("SetNXQueued = %+v, %v; want it granted past late waiters", r, err)
		}
		now := float64(time.Now().Unix())
		left := c.ZRangeWithScores(t.Context(), line, 0, -1).Val()
		for _, z := range left {
			if since := math.Mod(math.Mod(now-z.Score, span)+span, span); since > span/2 {
				t.Errorf("the waiter %v is noted %v seconds from now", z.Member, span-since)
			}
		}
		if len(left) != 3 {
			t.Errorf("the queue has %v; want all but the one of 40 seconds ago", left)
		}
	})
}

// commandsOf counts the commands that the server runs meanwhile, also those of scripts.
func commandsOf(t *testing.T, server *redistest.Server, do func()) (calls int) {
	t.Helper()
	if _, err := server.Do("CONFIG", "RESETSTAT"); err != nil {
		t.Fatal(err)
	}
	do()
	reply, err := server.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	info, _ := reply.(string)
	for line := range strings.Lines(info) {
		if _, stats, found := strings.Cut(line, ":calls="); found {
			number, _, _ := strings.Cut(stats, ",")
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			calls += n
		}
	}
	t.Logf("%d commands", calls)
	return calls
}
