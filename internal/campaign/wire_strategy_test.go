package campaign

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/goredis"
	"github.com/lockstep-go/lockstep/backends/redis"
	"github.com/lockstep-go/lockstep/internal/redistest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
	client "github.com/redis/go-redis/v9"
)

// A strategy is one under test, on so many nodes.
type strategy struct {
	name  string
	nodes int
	build func(stores []*redis.Store) (locker.Locker, error)

	// commands are those that faults strike, if not all that concern the key.
	commands []string
	// ownerless: nothing in the store tells whose a lock is. An attempt with an unknown outcome is not cleaned up, and a release
	// that is repeated may free another's lock. The doc comments of these recipes say so.
	ownerless bool
}

var strategies = []strategy{
	{name: "single", nodes: 1, build: over(func(s *redis.Store) locker.Locker { return single.New(s) })},
	{name: "fenced", nodes: 1, build: over(func(s *redis.Store) locker.Locker { return fenced.New(s) })},
	{name: "reentrant", nodes: 1, build: over(func(s *redis.Store) locker.Locker { return reentrant.New(s) })},
	{name: "redlock 2 of 3", nodes: 3, build: quorum},
	{name: "redlock 3 of 5", nodes: 5, build: quorum},
	{name: "redlock numbered 2 of 3", nodes: 3, build: numberedQuorum},
	{name: "redlock numbered 3 of 5", nodes: 5, build: numberedQuorum},
	{
		name: "legacy-expire", nodes: 1, build: over(func(s *redis.Store) locker.Locker { return legacy.Expire(s) }),
		commands: []string{"SETNX", "PEXPIRE", "EXEC"},
	},
	{
		name: "legacy-getset", nodes: 1, build: over(func(s *redis.Store) locker.Locker { return legacy.GetSet(s) }),
		commands: []string{"SETNX", "GETSET", "DEL"}, ownerless: true,
	},
	{
		name: "legacy-setbit", nodes: 1, build: over(func(s *redis.Store) locker.Locker { return legacy.SetBit(s) }),
		ownerless: true,
	},
}

func over(build func(*redis.Store) locker.Locker) func([]*redis.Store) (locker.Locker, error) {
	return func(stores []*redis.Store) (locker.Locker, error) { return build(stores[0]), nil }
}

func quorum(stores []*redis.Store) (locker.Locker, error) {
	var nodes []locker.Locker
	for _, s := range stores {
		nodes = append(nodes, single.New(s))
	}
	return redlock.New(nodes)
}

func numberedQuorum(stores []*redis.Store) (locker.Locker, error) {
	var nodes []backends.FencedStore
	for _, s := range stores {
		nodes = append(nodes, s)
	}
	return redlock.NewFenced(nodes)
}

// strikes tells whether a command is one that a fault is meant for.
func (s strategy) strikes(args []string, key string) bool {
	if s.commands != nil {
		return slices.Contains(s.commands, strings.ToUpper(args[0]))
	}
	return concerns(args, key)
}

// need is how many nodes have to hold a lock.
func (s strategy) need() int { return s.nodes/2 + 1 }

// A stage is what all cases share: servers, someone else who wants their locks, and one who looks. These two reach the servers
// without a proxy, so no fault concerns them.
type stage struct {
	servers []*redistest.Server
	others  map[string]*locker.Client // by strategy
	looking []*client.Client          // by server
	warming chan struct{}             // has room for those who connect at once: it takes more of the machine than all else
}

func setUp(t *testing.T, servers []*redistest.Server) *stage {
	s := &stage{servers: servers, others: map[string]*locker.Client{}, warming: make(chan struct{}, 4)}
	var stores []*redis.Store
	for _, server := range servers {
		store, c := goredis.Open(&client.Options{Addr: server.Addr()}, redis.WithoutQuarantine())
		t.Cleanup(func() { c.Close() })
		look := client.NewClient(&client.Options{Addr: server.Addr(), ReadTimeout: patience, PoolSize: 20, PoolTimeout: patience})
		t.Cleanup(func() { look.Close() })
		stores, s.looking = append(stores, store), append(s.looking, look)
	}
	for _, of := range strategies {
		l, err := of.build(stores[:of.nodes])
		if err != nil {
			t.Fatal(err)
		}
		s.others[of.name] = locker.New(l, locker.WithTTL(ttl), locker.WithoutExtension())
	}
	return s
}

// taken counts the nodes on which something lies under the key. A bit that is off is nothing.
func (s *scene) taken() (nodes int) {
	for _, look := range s.looking[:s.strategy.nodes] {
		exists, err := look.Exists(context.Background(), s.key).Result()
		if err != nil {
			s.Errorf("looking at the store: %v", err)
		}
		if exists == 1 && look.Get(context.Background(), s.key).Val() != "\x00" { // another type is something
			nodes++
		}
	}
	return nodes
}

// extended counts the nodes on which the key has more than the TTL before it.
func (s *scene) extended() (nodes int) {
	for _, look := range s.looking[:s.strategy.nodes] {
		left, err := look.PTTL(context.Background(), s.key).Result()
		if err != nil {
			s.Errorf("looking at the store: %v", err)
		}
		if left > ttl {
			nodes++
		}
	}
	return nodes
}
