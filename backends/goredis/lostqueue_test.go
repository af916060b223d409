package goredis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// How stores tell each other that a queue was lost. See also strategies.TestALostQueueWakesItsWaitersOnce.

// published returns how many messages a server was asked to publish.
func published(t *testing.T, server *redistest.Server) (calls int) {
	t.Helper()
	reply, err := server.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	_, stats, found := strings.Cut(reply.(string), "cmdstat_publish:calls=")
	if found {
		if _, err := fmt.Sscanf(stats, "%d,", &calls); err != nil {
			t.Fatal(err)
		}
	}
	return calls
}

// The stores are connected to any servers of the cluster.
func TestALostQueueIsToldToAllStoresOnce(t *testing.T) {
	t.Parallel()
	const losses = 3
	cluster := redistest.StartCluster(t, 3, 0)
	c := dialCluster(t, cluster)
	for _, server := range cluster.Masters() {
		key := cluster.KeyOn(server, "%d")
		mustSet(t, goredis.New(c), key, "token")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all []*queuer
		for i := range 4 {
			all = append(all, queueAt(ctx, t, goredis.New(dialCluster(t, cluster)), key, fmt.Sprint("waiter ", i), i+1))
		}
		for range losses {
			if err := c.Del(t.Context(), "{"+key+"}:\x00queue").Err(); err != nil {
				t.Fatal(err)
			}
			for i, q := range all {
				if i > 0 {
					await(t, "a wake-up of "+q.name, q.woken)
				}
				if r := q.ask(); r.OK || r.Position != i+1 {
					t.Errorf("%s, after the queue was lost: %+v", q.name, r)
				}
			}
		}
		if n := published(t, server); n != losses {
			t.Errorf("%d messages for %d lost queues", n, losses)
		}
		if n := all[0].count.Load(); n != 0 {
			t.Errorf("the waiter that found out was woken %d times", n)
		}
	}
}

// A grant tells it too, and so do waiters for a shared lock.
func TestALostQueueIsToldByAGrant(t *testing.T) {
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr()})
	for name, enter := range map[string]func(s *redisstore.Store, token string, t backends.Turn) (backends.Result, error){
		"SetNXQueued": func(s *redisstore.Store, token string, turn backends.Turn) (backends.Result, error) {
			return s.SetNXQueued(t.Context(), "SetNXQueued", token, time.Minute, turn)
		},
		"SetNXNumbered": func(s *redisstore.Store, token string, turn backends.Turn) (backends.Result, error) {
			return s.SetNXNumbered(t.Context(), "SetNXNumbered", token, time.Minute, turn)
		},
		"Enter": func(s *redisstore.Store, token string, turn backends.Turn) (backends.Result, error) {
			return s.Enter(t.Context(), "Enter", token, time.Minute, backends.Admission{Limit: 1, Turn: turn})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(s *redisstore.Store, waiter string) backends.Result {
				t.Helper()
				r, err := enter(s, "of "+waiter, backends.Turn{Waiter: waiter, InOrder: true})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			first, second, woken := goredis.New(c, hour), goredis.New(c, hour), make(chan struct{}, 10)
			if r := ask(first, ""); !r.OK {
				t.Fatalf("the first call = %+v", r)
			}
			for s, waiter := range map[*redisstore.Store]string{first: "first", second: "second"} {
				if err := s.WatchQueued(t.Context(), name, waiter, func() { woken <- struct{}{} }); err != nil {
					t.Fatal(err)
				}
			}
			if r := ask(first, "first"); r.Position != 1 {
				t.Fatalf("the first waiter: %+v", r)
			}
			if r := ask(second, "second"); r.Position != 2 {
				t.Fatalf("the second waiter: %+v", r)
			}
			before := published(t, server)
			c.Del(t.Context(), name, "{"+name+"}:\x00queue")
			if r := ask(first, "first"); !r.OK {
				t.Errorf("the first waiter, of a free key: %+v", r)
			}
			await(t, "a wake-up of the second", woken)
			if r := ask(second, "second"); r.OK || r.Position != 1 {
				t.Errorf("the second waiter, after the queue was lost: %+v", r)
			}
			if n := published(t, server) - before; n != 1 {
				t.Errorf("%d messages for a lost queue", n)
			}
		})
	}
}

// Versions before this one take a waiter out of the queue when they reserve the lock for it.
func TestAReservationByAnOlderVersionIsNoLoss(t *testing.T) {
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr()})
	s := goredis.New(c)
	mustSet(t, s, "a", "token")
	q := queueAt(t.Context(), t, s, "a", "waiter", 1)
	member := c.ZRange(t.Context(), queue, 0, 0).Val()[0]
	c.ZRem(t.Context(), queue, member)
	c.Set(t.Context(), "a", "lockstep:reserved:"+member, 20*time.Second)
	waiter, channel, _ := strings.Cut(member, "@") // that is how they read a member
	if n := c.Publish(t.Context(), channel, "r"+waiter+"@a").Val(); n != 1 {
		t.Errorf("%d stores hear on the channel of a waiter", n)
	}
	await(t, "the message of an older version", q.woken)
	if r := q.ask(); !r.OK {
		t.Errorf("the waiter with the reservation: %+v", r)
	}

	shared := backends.Admission{Limit: 1, Turn: backends.Turn{Waiter: "shared"}}
	if r, err := s.Enter(t.Context(), "b", "token", 20*time.Second, backends.Admission{Limit: 1}); err != nil || !r.OK {
		t.Fatalf("Enter = %+v, %v", r, err)
	}
	if err := s.WatchQueued(t.Context(), "b", "shared", func() {}); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Enter(t.Context(), "b", "other", 20*time.Second, shared); err != nil || r.Position != 1 {
		t.Fatalf("Enter = %+v, %v", r, err)
	}
	member = c.ZRange(t.Context(), "{b}:\x00queue", 0, 0).Val()[0]
	reserve := func() {
		c.ZRem(t.Context(), "{b}:\x00queue", member)
		c.ZAdd(t.Context(), "{b}:\x00reserved", client.Z{Member: member, Score: float64(time.Now().Add(time.Minute).UnixMilli())})
	}
	reserve()
	if r, err := s.Enter(t.Context(), "b", "other", 20*time.Second, shared); err != nil || r.OK {
		t.Errorf("Enter with a reservation and no room = %+v, %v", r, err)
	}
	reserve()
	c.Del(t.Context(), "b")
	if r, err := s.Enter(t.Context(), "b", "other", 20*time.Second, shared); err != nil || !r.OK {
		t.Errorf("Enter with a reservation = %+v, %v", r, err)
	}
	if n := published(t, server); n != 1 { // the message of the older version
		t.Errorf("%d messages about lost queues", n-1)
	}
}

// All waiters look when they are connected again. If each told the others of its lost position, each
// would look once for every other.
func TestWaitersThatAreConnectedAgainTellNobody(t *testing.T) {
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr()})
	mustSet(t, goredis.New(c), "a", "token")
	var all []*queuer
	for i := range 4 {
		all = append(all, queueAt(t.Context(), t, goredis.New(c), "a", fmt.Sprint("waiter ", i), i+1))
	}
	c.Del(t.Context(), queue)
	c.ClientKillByFilter(t.Context(), "TYPE", "pubsub")
	for _, q := range all {
		await(t, "a hint for the "+q.name, q.woken)
	}
	for i, q := range all {
		if r := q.ask(); r.OK || r.Position != i+1 {
			t.Errorf("%s, after the queue was lost: %+v", q.name, r)
		}
	}
	if n := published(t, server); n != 0 {
		t.Errorf("%d messages about lost queues", n)
	}
}
