package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/proof/drivertest"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/redistest"
	"github.com/lockstep-go/lockstep/proof/trial"
	client "github.com/redis/go-redis/v9"
)

// For each change it runs only the contracts of a Store. The strategies use the other commands through a
// cluster, and TestKeysOfAllShapesLockAndWakeOnEveryNodeOfACluster sends them to every node.
func TestContractThroughACluster(t *testing.T) {
	t.Parallel()
	replicas := 0
	if full.Size() {
		replicas = 1
	}
	c := dialCluster(t, redistest.StartCluster(t, 3, replicas))
	for _, m := range []drivertest.Mode{
		drivertest.Plain, drivertest.Scriptless.Nightly(), drivertest.Prefixed.Nightly(), drivertest.Polling.Nightly(), drivertest.Replicated.Nightly(),
	} {
		m.Brief = true
		m.Run(t, func(*testing.T) drivertest.Client { return goredis.Driven(c) })
	}
}

func dialCluster(t *testing.T, cluster *redistest.Cluster) *client.ClusterClient {
	t.Helper()
	c := client.NewClusterClient(&client.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { c.Close() })
	return c
}

// What belongs to a key is in its slot, and a wake comes from wherever the key is to whoever waits.
func TestKeysOfAllShapesLockAndWakeOnEveryNodeOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	holder, waiter := goredis.New(dialCluster(t, cluster)), goredis.New(dialCluster(t, cluster))
	shapes := []string{
		"plain-%d", "{%d}", "{%d}b", "a{%d}", "a}%d", "{a%d", "{}%d", "}{%d", "a{b%d}{c}", "{{%d}}", "with space %d", "größe:%d",
	}
	for _, shape := range shapes {
		for i, node := range cluster.Masters() {
			t.Run(fmt.Sprintf("%s on node %d", shape, i), func(t *testing.T) {
				key := cluster.KeyOn(node, shape)
				woken := make(chan struct{}, 100)
				if err := waiter.Watch(t.Context(), key, func() { woken <- struct{}{} }); err != nil {
					t.Fatal(err)
				}
				r, err := holder.SetNX(t.Context(), key, "token", 20*time.Second)
				if err != nil || !r.OK {
					t.Fatalf("SetNX = %+v, %v", r, err)
				}
				if r, err := waiter.SetNX(t.Context(), key, "other", 20*time.Second); err != nil || r.OK || r.Left == 0 {
					t.Errorf("SetNX of another = %+v, %v", r, err)
				}
				if ok, err := holder.ExpireIf(t.Context(), key, "token", 30*time.Second); err != nil || !ok {
					t.Errorf("ExpireIf = %v, %v", ok, err)
				}
				if ok, err := holder.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
					t.Errorf("DeleteIf = %v, %v", ok, err)
				}
				await(t, "the wake", woken)

				r, err = holder.SetNXNumbered(t.Context(), key, "token", 20*time.Second, backends.Turn{})
				if err != nil || !r.OK || r.Fence == 0 {
					t.Errorf("SetNXFenced = %+v, %v", r, err)
				}
				if ok, err := holder.RaiseFence(t.Context(), key, "token", r.Fence+1); err != nil || !ok {
					t.Errorf("RaiseFence = %v, %v", ok, err)
				}
				if ok, err := holder.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
					t.Errorf("DeleteIf = %v, %v", ok, err)
				}
				if r, err := holder.Enter(t.Context(), key, "token", 20*time.Second, backends.Admission{Group: "me"}); err != nil || !r.OK {
					t.Errorf("Enter = %+v, %v", r, err)
				}
				if ok, err := holder.Leave(t.Context(), key, "token"); err != nil || !ok {
					t.Errorf("Leave = %v, %v", ok, err)
				}
				await(t, "the wake", woken)
			})
		}
	}
}

// A server may have its slots in several ranges, and a client may not know yet where a slot has moved.
func TestListFindsTheKeysOfAllServersOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	c := dialCluster(t, cluster)
	store := goredis.New(c, redisstore.WithPrefix("app:"), hour)
	const many = 60
	set := func(key string) {
		if r, err := store.SetNX(t.Context(), key, "token", time.Hour); err != nil || !r.OK {
			t.Fatalf("SetNX = %+v, %v", r, err)
		}
	}
	for i := range many {
		set(fmt.Sprint("lock", i))
		set(fmt.Sprintf("{tag}%d", i))
	}
	for i, to := range cluster.Masters() {
		key := cluster.KeyOn(cluster.Masters()[(i+1)%3], fmt.Sprintf("app:moved-%d-%%d", i))
		set(strings.TrimPrefix(key, "app:"))
		cluster.MoveSlot(key, to)
	}
	for prefix, want := range map[string]int{"lock": many, "{tag}": many, "moved-": 3, "": 2*many + 3} {
		found, pages := map[string]int{}, 0
		for after := ""; pages == 0 || after != ""; pages++ {
			page, err := store.List(trial.Patient(t), prefix, after, backends.MaxPage)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range page.Keys {
				found[k.Key]++
			}
			after = page.Next
		}
		if len(found) != want || prefix == "{tag}" && pages != 1 || prefix == "lock" && pages < 3 {
			t.Errorf("List of %q finds %d keys in %d pages; want %d", prefix, len(found), pages, want)
		}
		for key, times := range found {
			if times != 1 {
				t.Errorf("List of %q tells %q %d times", prefix, key, times)
			}
		}
	}
}

// clusterCalls are the calls of a store on a lock that token holds, and what must come of them.
var clusterCalls = map[string]func(ctx context.Context, s *redisstore.Store, key string) error{
	"SetNX of another": func(ctx context.Context, s *redisstore.Store, key string) error {
		r, err := s.SetNX(ctx, key, "other", 20*time.Second)
		return wanted(err, !r.OK && r.Left > 0, r)
	},
	"SetNX again": func(ctx context.Context, s *redisstore.Store, key string) error {
		r, err := s.SetNX(ctx, key, "token", 20*time.Second)
		return wanted(err, r.OK, r)
	},
	"SetNX of a free key": func(ctx context.Context, s *redisstore.Store, key string) error {
		r, err := s.SetNX(ctx, key+"free", "token", 20*time.Second)
		return wanted(err, r.OK, r)
	},
	"ExpireIf": func(ctx context.Context, s *redisstore.Store, key string) error {
		ok, err := s.ExpireIf(ctx, key, "token", 20*time.Second)
		return wanted(err, ok, ok)
	},
	"ExpireIf of another": func(ctx context.Context, s *redisstore.Store, key string) error {
		ok, err := s.ExpireIf(ctx, key, "other", 20*time.Second)
		return wanted(err, !ok, ok)
	},
	"DeleteIf": func(ctx context.Context, s *redisstore.Store, key string) error {
		ok, err := s.DeleteIf(ctx, key, "token")
		return wanted(err, ok, ok)
	},
	"DeleteIf of another": func(ctx context.Context, s *redisstore.Store, key string) error {
		ok, err := s.DeleteIf(ctx, key, "other")
		return wanted(err, !ok, ok)
	},
	"Enter and Leave a free key": func(ctx context.Context, s *redisstore.Store, key string) error {
		r, err := s.Enter(ctx, key+"shared", "token", 20*time.Second, backends.Admission{Group: "me"})
		if err == nil && r.OK {
			r.OK, err = s.Leave(ctx, key+"shared", "token")
		}
		return wanted(err, r.OK, r)
	},
}

func wanted(err error, holds bool, got any) error {
	if err == nil && !holds {
		err = fmt.Errorf("it answered %+v", got)
	}
	return err
}

// Every client here knows the slots as they were, and the new node knows no script yet.
func TestCallsFollowASlotThatHasMovedOrIsMoving(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	for _, state := range []string{"moved", "moving, the key is still there", "moving, the key is gone already"} {
		for name, call := range clusterCalls {
			t.Run(state+": "+name, func(t *testing.T) {
				from, to := cluster.Masters()[0], cluster.Masters()[1]
				key := cluster.KeyOn(from, "{"+t.Name()+"%d}")
				store := goredis.New(dialCluster(t, cluster))
				if r, err := store.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
					t.Fatalf("SetNX = %+v, %v", r, err)
				}
				forgetScripts(t, to)
				move := cluster.BeginMove(key, to)
				switch state {
				case "moved":
					move.Finish()
				case "moving, the key is gone already":
					move.Keys()
				}
				if err := call(t.Context(), store, key); err != nil {
					t.Error(err)
				}
				move.Finish()
			})
		}
	}
}

func forgetScripts(t *testing.T, s *redistest.Server) {
	t.Helper()
	if _, err := s.Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
}

// Someone waits while the slot moves, and is woken by a release on the new node.
func TestAWakeComesFromTheNodeThatTheSlotHasMovedTo(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	from, to := cluster.Masters()[0], cluster.Masters()[1]
	key := cluster.KeyOn(from, "%d")
	holder, waiter := goredis.New(dialCluster(t, cluster)), goredis.New(dialCluster(t, cluster))
	woken := make(chan struct{}, 100)
	if err := waiter.Watch(t.Context(), key, func() { woken <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if r, err := holder.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
			t.Fatalf("SetNX = %+v, %v", r, err)
		}
		cluster.MoveSlot(key, to)
		if ok, err := holder.DeleteIf(t.Context(), key, "token"); err != nil || !ok {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
		await(t, "the wake", woken)
		from, to = to, from
	}
}

// A connection of its own can't be led elsewhere by ASK: the call fails without an answer as long
// as the slot moves. When it has moved, the next call finds it.
func TestCallsOnAConnectionOfTheirOwnFindASlotThatHasMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	from, to := cluster.Masters()[0], cluster.Masters()[1]
	for name, call := range clusterCalls {
		if name == "Enter and Leave a free key" {
			continue // needs scripts
		}
		t.Run(name, func(t *testing.T) {
			key := cluster.KeyOn(from, "{"+t.Name()+"%d}")
			store := goredis.New(dialCluster(t, cluster), redisstore.WithoutScripts())
			if r, err := store.SetNX(t.Context(), key, "token", 20*time.Second); err != nil || !r.OK {
				t.Fatalf("SetNX = %+v, %v", r, err)
			}
			move := cluster.BeginMove(key, to)
			move.Keys()
			err := call(t.Context(), store, key)
			if reply := (*redisstore.ReplyError)(nil); err != nil && (!errors.As(err, &reply) || reply.Permanent() || reply.Code() != "ASK") {
				t.Error(err)
			}
			move.Finish()
			moved := time.Now()
			if err := call(t.Context(), store, key); err != nil {
				t.Error(err)
			}
			if took := time.Since(moved); took > reloadInterval/2 {
				t.Errorf("it took %v, as if nobody had asked where the slot is", took)
			}
		})
	}
}

// A numbered grant is about two keys, which Redis refuses to touch while their slot moves. It must
// not be taken for a lock that is held, and the numbers must move along.
func TestNumberedGrantsGoOnWhenTheSlotHasMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, 0)
	from, to := cluster.Masters()[0], cluster.Masters()[1]
	key := cluster.KeyOn(from, "%d")
	store := goredis.New(dialCluster(t, cluster))
	grant := func(token string) uint64 {
		t.Helper()
		r, err := store.SetNXFenced(t.Context(), key, token, 20*time.Second)
		if err != nil || !r.OK {
			t.Fatalf("SetNXFenced = %+v, %v", r, err)
		}
		return r.Fence
	}
	release := func(token string) {
		t.Helper()
		if ok, err := store.DeleteIf(t.Context(), key, token); err != nil || !ok {
			t.Fatalf("DeleteIf = %v, %v", ok, err)
		}
	}
	for _, keys := range []func(*redistest.Move){(*redistest.Move).Keys, func(*redistest.Move) {}} {
		first := grant("first")
		move := cluster.BeginMove(key, to)
		keys(move)
		if ok, err := store.ExpireIf(t.Context(), key, "first", 30*time.Second); err != nil || !ok {
			t.Errorf("ExpireIf = %v, %v", ok, err)
		}
		release("first")
		_, err := store.SetNXFenced(t.Context(), key, "second", 20*time.Second)
		if reply := (*redisstore.ReplyError)(nil); !errors.As(err, &reply) || reply.Code() != "TRYAGAIN" || reply.Permanent() {
			t.Errorf("SetNXFenced in a slot that moves = %v", err)
		}
		move.Finish()
		if second := grant("second"); second <= first {
			t.Errorf("number %d after %d", second, first)
		}
		release("second")
		from, to = to, from
	}
}

// reloadInterval is how often go-redis asks of its own accord who has which slot.
const reloadInterval = time.Minute

func TestAHeldLockOutlivesAFailoverOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	key := cluster.KeyOn(cluster.Masters()[1], "{%d}")
	connect := func() drivertest.Client { return goredis.Driven(dialCluster(t, cluster)) }
	drivertest.OutlivesFailover(t, key, connect, func() { cluster.AwaitFailover(key, cluster.KillMaster(key)) })
}
