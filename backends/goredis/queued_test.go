package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/redistest"
	client "github.com/redis/go-redis/v9"
)

// What is beside the contract of a queue: how it looks on the server, and what becomes of places
// whose store is gone.

const queue = "{a}:\x00queue" // of the key a

// queuer waits for a key at a store.
type queuer struct {
	t         *testing.T
	store     *redisstore.Store
	key, name string
	woken     chan struct{}
	count     atomic.Int64
}

// queueAt watches for a waiter and asks for key, which is held: he must get that place.
func queueAt(ctx context.Context, t *testing.T, s *redisstore.Store, key, name string, place int) *queuer {
	t.Helper()
	q := &queuer{t: t, store: s, key: key, name: name, woken: make(chan struct{}, 100)}
	if err := s.WatchQueued(ctx, key, name, func() { q.count.Add(1); q.woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if r := q.ask(); r.OK || r.Position != place {
		t.Fatalf("SetNXQueued of %s = %+v; want place %d", name, r, place)
	}
	return q
}

func (q *queuer) ask() backends.Result {
	q.t.Helper()
	r, err := q.store.SetNXQueued(q.t.Context(), q.key, "of "+q.name, 20*time.Second, backends.Turn{Waiter: q.name, InOrder: true})
	if err != nil {
		q.t.Fatalf("SetNXQueued of %s: %v", q.name, err)
	}
	return r
}

// turn waits until q is granted the key.
func (q *queuer) turn() {
	q.t.Helper()
	for !q.ask().OK {
		await(q.t, "the turn of "+q.name, q.woken)
	}
}

func mustSet(t *testing.T, s *redisstore.Store, key, token string) {
	t.Helper()
	if r, err := s.SetNX(t.Context(), key, token, 20*time.Second); err != nil || !r.OK {
		t.Fatalf("SetNX = %+v, %v", r, err)
	}
}

// inTime repeats a scene until it says that it was played before a reservation could end.
func inTime(t *testing.T, what string, scene func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !scene(); {
		if time.Now().After(limit) {
			t.Fatalf("not before a reservation ended: %s", what)
		}
	}
}

func TestAPlaceWhoseStoreIsGoneIsPassedOverAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		mustSet(t, s, "a", "token")
		next := queueAt(t.Context(), t, s, "a", "next", 1)
		channel := strings.TrimPrefix(c.ZRange(t.Context(), queue, 0, 0).Val()[0], "next@")
		for what, member := range map[string]string{
			"nobody hears on its channel":          "gone@nowhere",
			"it has no channel":                    "gone",
			"its store does not know the waiter":   "gone@" + channel,
			"the waiter waits for another key now": "elsewhere@" + channel,
		} {
			elsewhere, cancel := context.WithCancel(t.Context())
			if err := s.WatchQueued(elsewhere, "b", "elsewhere", func() {}); err != nil {
				t.Fatal(err)
			}
			inTime(t, what, func() bool {
				if err := c.ZAdd(t.Context(), queue, client.Z{Member: member, Score: -1}).Err(); err != nil {
					t.Fatal(err)
				}
				released := time.Now()
				mustDelete(t, s, "a", "token")
				await(t, "the turn of the next", next.woken)
				next.turn()
				took := time.Since(released)
				mustDelete(t, s, "a", "of next")
				mustSet(t, s, "a", "token")
				if r := next.ask(); r.OK || r.Position != 1 {
					t.Fatalf("SetNXQueued of the next = %+v", r)
				}
				return took < backends.Reservation
			})
			cancel()
		}
	})
}

// In a cluster the store of a waiter may be connected to another server, so nobody knows that it is gone.
func TestAPlaceWhoseStoreIsGoneCostsAReservationInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	c := dialCluster(t, cluster)
	holder, waiting := goredis.New(dialCluster(t, cluster)), goredis.New(c)
	mustSet(t, holder, "a", "token")
	if err := c.ZAdd(t.Context(), queue, client.Z{Member: "gone@nowhere", Score: 1}).Err(); err != nil {
		t.Fatal(err)
	}
	next := queueAt(t.Context(), t, waiting, "a", "next", 2)
	released := time.Now()
	mustDelete(t, holder, "a", "token")
	next.turn()
	if took := time.Since(released); took < backends.Reservation-2*time.Millisecond {
		t.Errorf("granted after %v", took)
	}
}

// A lock and its queue are two keys, which Redis refuses to touch while their slot moves.
func TestAQueueWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	from, to := cluster.Masters()[0], cluster.Masters()[1]
	key := cluster.KeyOn(from, "%d")
	holder, waiting := goredis.New(dialCluster(t, cluster)), goredis.New(dialCluster(t, cluster))
	ask := func(waiter string, inOrder bool) (backends.Result, error) {
		return waiting.SetNXQueued(t.Context(), key, "of "+waiter, 20*time.Second, backends.Turn{Waiter: waiter, InOrder: inOrder})
	}
	for _, keys := range []func(*redistest.Move){func(*redistest.Move) {}, (*redistest.Move).Keys} {
		mustSet(t, holder, key, "token")
		move := cluster.BeginMove(key, to)
		ctx, cancel := context.WithCancel(t.Context())
		if err := waiting.WatchQueued(ctx, key, "waiter", func() {}); err != nil {
			t.Fatal(err)
		}
		_, err := ask("waiter", true)
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != "TRYAGAIN" || reply.Permanent() {
			t.Errorf("SetNXQueued in order, in a slot that moves = %v", err)
		}
		if r, err := ask("waiter", false); err != nil || r.OK || r.Left == 0 || r.Position != 0 {
			t.Errorf("SetNXQueued in a slot that moves = %+v, %v", r, err)
		}
		keys(move)
		mustDelete(t, holder, key, "token")
		if r, err := ask("waiter", false); err != nil || !r.OK {
			t.Errorf("SetNXQueued of a free key in a slot that moves = %+v, %v", r, err)
		}
		move.Finish()
		next := queueAt(t.Context(), t, waiting, key, "next", 1)
		mustDelete(t, holder, key, "of waiter")
		next.turn()
		mustDelete(t, holder, key, "of next")
		cancel()
		from, to = to, from
	}
}

// Redis refuses the script that removes a waiter while the slot moves: some of its keys are not there.
func TestAWaiterThatLeavesWhileItsSlotMovesIsRemovedFromTheQueue(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	from, to := cluster.Masters()[0], cluster.Masters()[1]
	c := dialCluster(t, cluster)
	holder, waiting := goredis.New(dialCluster(t, cluster)), goredis.New(c)
	for _, shared := range []bool{false, true} {
		for _, keys := range []func(*redistest.Move){func(*redistest.Move) {}, (*redistest.Move).Keys} {
			key := cluster.KeyOn(from, "%d")
			ctx, cancel := context.WithCancel(t.Context())
			if err := waiting.WatchQueued(ctx, key, "waiter", func() {}); err != nil {
				t.Fatal(err)
			}
			mustSet(t, holder, key, "token")
			ask := func() (backends.Result, error) {
				return waiting.SetNXQueued(t.Context(), key, "of waiter", 20*time.Second, backends.Turn{Waiter: "waiter"})
			}
			if shared {
				mustDelete(t, holder, key, "token")
				if r, err := holder.Enter(t.Context(), key, "token", 20*time.Second, backends.Admission{Limit: 1}); err != nil || !r.OK {
					t.Fatalf("Enter = %+v, %v", r, err)
				}
				ask = func() (backends.Result, error) {
					return waiting.Enter(t.Context(), key, "of waiter", 20*time.Second,
						backends.Admission{Limit: 1, Turn: backends.Turn{Waiter: "waiter"}})
				}
			}
			if r, err := ask(); err != nil || r.OK || r.Position != 1 {
				t.Fatalf("the waiter was answered %+v, %v", r, err)
			}
			move := cluster.BeginMove(key, to)
			keys(move)
			if err := c.Del(t.Context(), key).Err(); err != nil { // as if it had expired
				t.Fatal(err)
			}
			cancel()
			for limit := time.Now().Add(patience); ; {
				if n, err := c.Exists(t.Context(), "{"+key+"}:\x00queue").Result(); err == nil && n == 0 {
					break
				}
				if time.Now().After(limit) {
					t.Fatalf("the waiter is still in the queue (shared: %v)", shared)
				}
			}
			move.Finish()
			from, to = to, from
		}
	}
}

func TestAConnectionThatWasCutIsAHintForAllWhoQueue(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	waiting := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}))
	holder := goredis.New(dial(t, &client.Options{Addr: server.Addr()}))
	var all []*queuer
	for _, key := range []string{"a", "b"} {
		mustSet(t, holder, key, "token")
		all = append(all, queueAt(t.Context(), t, waiting, key, "first of "+key, 1), queueAt(t.Context(), t, waiting, key, "second of "+key, 2))
	}
	for range 10 {
		proxy.CutAll()
		for _, q := range all {
			await(t, "a hint for the "+q.name, q.woken)
		}
	}
	mustDelete(t, holder, "b", "token")
	await(t, "the turn of the "+all[2].name, all[2].woken)
}

// A hand-over costs two scripts and wakes one waiter, however many there are.
func TestAReleaseWakesNobodyButTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := goredis.Embed(t)
		holder := goredis.New(c)
		mustSet(t, holder, "a", "token")
		ctx, cancel := context.WithCancel(context.Background())
		defer synctest.Wait() // until all have gone: the server is closed next
		defer cancel()
		var all []*queuer
		for i := range 20 {
			s := holder
			if i%2 == 0 {
				s = goredis.New(c)
			}
			all = append(all, queueAt(ctx, t, s, "a", fmt.Sprint("waiter ", i), i+1))
		}
		mustDelete(t, holder, "a", "token")
		for i, q := range all {
			<-q.woken
			if r := q.ask(); !r.OK {
				t.Fatalf("%s, whose turn it is: %+v", q.name, r)
			}
			synctest.Wait()
			for j, other := range all {
				if n := other.count.Load(); j <= i && n != 1 || j > i && n != 0 {
					t.Errorf("when it is the turn of %s, %s has been woken %d times", q.name, other.name, n)
				}
			}
			mustDelete(t, q.store, "a", "of "+q.name)
		}
		time.Sleep(time.Minute)
		for _, q := range all {
			if n := q.count.Load(); n != 1 {
				t.Errorf("%s, who has had the key, is woken %d times more", q.name, n-1)
			}
		}
	})
}

// After a release that found nobody in the queue, the next attempt of the store is a plain SET, unless
// the waiter may have a position.
func TestAKeyThatIsLikelyToBeFreeCostsNoScript(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s := goredis.New(dial(t, &client.Options{Addr: proxy.Addr()}))
	outside := dial(t, &client.Options{Addr: server.Addr()})
	for key, waiter := range map[string]string{"a": "waiter", "b": "another"} {
		if err := s.WatchQueued(t.Context(), key, waiter, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(turn backends.Turn, want backends.Result, sent ...string) {
		t.Helper()
		turn.Waiter = "waiter"
		proxy.Forget()
		r, err := s.SetNXQueued(t.Context(), "a", "mine", 20*time.Second, turn)
		if r.Left = 0; r != want || err != nil {
			t.Fatalf("SetNXQueued by %+v = %+v, %v; want %+v", turn, r, err, want)
		}
		got := slices.DeleteFunc(proxy.Seen(), func(name string) bool { return name == "HELLO" || name == "CLIENT" })
		if !slices.Equal(got, sent) {
			t.Errorf("SetNXQueued by %+v sent %v; want %v", turn, got, sent)
		}
	}
	free := func() { // not by a release of the store
		t.Helper()
		if err := outside.Del(t.Context(), "a").Err(); err != nil {
			t.Fatal(err)
		}
	}
	granted, refused := backends.Result{OK: true}, backends.Result{Position: 1}
	ask(backends.Turn{}, granted, "EVALSHA", "EVAL") // this server did not know the script
	free()
	ask(backends.Turn{}, granted, "EVALSHA")
	mustDelete(t, s, "a", "mine")
	ask(backends.Turn{}, granted, "SET")
	free()
	ask(backends.Turn{}, granted, "EVALSHA") // a release is good for one attempt
	free()
	mustSet(t, s, "b", "mine")
	mustDelete(t, s, "b", "mine") // and for its own key
	ask(backends.Turn{}, granted, "EVALSHA")
	mustDelete(t, s, "a", "mine")
	ask(backends.Turn{InOrder: true}, granted, "EVALSHA")
	mustDelete(t, s, "a", "mine")
	outside.Set(t.Context(), "a", "theirs", 20*time.Second)
	ask(backends.Turn{}, refused, "SET", "EVALSHA")
	outside.Del(t.Context(), queue)
	mustDelete(t, s, "a", "theirs")
	ask(backends.Turn{}, granted, "EVALSHA") // the waiter may have a position, which it removes
	mustDelete(t, s, "a", "mine")
	ask(backends.Turn{}, granted, "SET")
	next := queueAt(t.Context(), t, s, "a", "next", 1)
	mustDelete(t, s, "a", "mine") // the key is reserved
	ask(backends.Turn{}, refused, "EVALSHA")
	next.turn()
}

func TestAQueueExpiresAndIsInNobodysWay(t *testing.T) {
	onBoth(t, func(t *testing.T, s *redisstore.Store, c *client.Client) {
		mustSet(t, s, "a", "token")
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.WatchQueued(ctx, "a", "waiter", func() {}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.SetNXQueued(ctx, "a", "other", 20*time.Second, backends.Turn{Waiter: "waiter"}); err != nil || r.Position != 1 {
			t.Fatalf("SetNXQueued = %+v, %v", r, err)
		}
		if left := c.PTTL(t.Context(), queue).Val(); left <= 0 || left > 10*time.Minute {
			t.Errorf("the queue lives for %v", left)
		}
		cancel()
		eventually(t, "the queue is gone with the last waiter", func() bool { return c.Exists(t.Context(), queue).Val() == 0 })

		// Somebody else's value lies where the queue should be.
		if err := c.Set(t.Context(), queue, "value", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.WatchQueued(t.Context(), "a", "next", func() {}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.SetNXQueued(t.Context(), "a", "other", 20*time.Second, backends.Turn{Waiter: "next"}); !errors.Is(err, backends.ErrWrongType) {
			t.Errorf("SetNXQueued = %+v, %v", r, err)
		}
		mustDelete(t, s, "a", "token")
		if c.Exists(t.Context(), "a").Val() != 0 {
			t.Error("the lock is not free")
		}
	})
}

// Where there are no queues a waiter asks like anybody.
func TestStoresWithoutQueues(t *testing.T) {
	server := redistest.Start(t)
	c := dial(t, &client.Options{Addr: server.Addr()})
	for name, opt := range map[string]redisstore.Option{
		"WithoutWakes": redisstore.WithoutWakes(), "WithoutScripts": redisstore.WithoutScripts(), "WithReplicas": redisstore.WithReplicas(1, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			s, woken := goredis.New(c, opt), make(chan struct{}, 100)
			if err := c.Set(t.Context(), "a", "token", 20*time.Second).Err(); err != nil {
				t.Fatal(err)
			}
			err := s.WatchQueued(t.Context(), "a", "waiter", func() { woken <- struct{}{} })
			if polls := name == "WithoutWakes"; polls != errors.Is(err, errors.ErrUnsupported) || !polls && err != nil {
				t.Fatalf("WatchQueued = %v", err)
			}
			turn := backends.Turn{Waiter: "waiter"}
			if r, err := s.SetNXQueued(t.Context(), "a", "other", 20*time.Second, turn); err != nil || r.OK || r.Left == 0 || r.Position != 0 {
				t.Errorf("SetNXQueued = %+v, %v", r, err)
			}
			turn.InOrder = true
			r, err := s.SetNXQueued(t.Context(), "a", "other", 20*time.Second, turn)
			if refused := (interface{ Permanent() bool })(nil); r.OK || !errors.As(err, &refused) || !strings.Contains(err.Error(), name) {
				t.Errorf("SetNXQueued in order = %+v, %v", r, err)
			}
			mustDelete(t, s, "a", "token")
			if n := c.Exists(t.Context(), "a").Val(); n != 0 {
				t.Error("the lock is not free")
			}
			if name != "WithoutWakes" {
				await(t, "the wake", woken)
			}
		})
	}
}

// A waiter that was woken made no attempt, and its reservation has ended. The next attempt of any caller reserves
// the room for the next waiter, whether that attempt is granted or refused.
func TestRoomOfAReservationThatHasEndedIsGivenOn(t *testing.T) {
	t.Parallel()
	const queued, reserved = "{b}:\x00queue", "{b}:\x00reserved"
	for name, limit := range map[string]int{"an attempt that is refused": 1, "an attempt that is granted": 4} {
		c := dial(t, &client.Options{Addr: redistest.Start(t).Addr()})
		s := goredis.New(c)
		enter := func(token, waiter string, limit int) backends.Result {
			r, err := s.Enter(t.Context(), "b", token, 20*time.Second, backends.Admission{Limit: limit, Turn: backends.Turn{Waiter: waiter}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		for _, token := range []string{"one", "two", "three", "four"} {
			if r := enter(token, "", 4); !r.OK {
				t.Fatalf("Enter of %s = %+v", token, r)
			}
		}
		for i, waiter := range []string{"gone", "next"} {
			if err := s.WatchQueued(t.Context(), "b", waiter, func() {}); err != nil {
				t.Fatal(err)
			}
			if r := enter("of "+waiter, waiter, 4); r.OK || r.Position != i+1 {
				t.Fatalf("Enter of %s = %+v; want position %d", waiter, r, i+1)
			}
		}
		next := c.ZRange(t.Context(), queued, 1, 1).Val()[0]
		if ok, err := s.Leave(t.Context(), "b", "four"); !ok || err != nil {
			t.Fatalf("Leave = %v, %v", ok, err)
		}
		all := c.ZRange(t.Context(), reserved, 0, -1).Val()
		if len(all) != 1 || !strings.HasPrefix(all[0], "gone@") {
			t.Fatalf("the reservations are %q; want one, for the waiter named gone", all)
		}
		c.ZAdd(t.Context(), reserved, client.Z{Member: all[0], Score: 1}) // it has ended
		c.ZRem(t.Context(), "b", "three")                                 // so that there is room for two
		if r := enter("other", "", limit); r.OK != (limit == 4) {
			t.Errorf("%s: Enter = %+v", name, r)
		}
		if all := c.ZRange(t.Context(), reserved, 0, -1).Val(); !slices.Equal(all, []string{next}) {
			t.Errorf("%s: the reservations are %q; want one, for the waiter named next", name, all)
		}
	}
}
