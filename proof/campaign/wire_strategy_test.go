package campaign

import (
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A strategy is a strategy under test, on a number of nodes.
type strategy struct {
	name  string
	nodes int
	build func(stores []*redisstore.Store) (locker.Locker, error)

	// commands are the ones that faults meet; nil: all that concern the key.
	commands []string
	// ownerless: the store does not know the holder of a lock. An unknown attempt is not cleaned
	// up, and a release that is repeated may free the lock of another holder. The doc comments of
	// these recipes say so.
	ownerless bool
	// sendsTimes: the value of a key is a time by the clock of the client that set it.
	sendsTimes bool
	// nested: an owner has several holds at once; each operation is within another hold of its
	// owner.
	nested bool
	// against builds the Locker of the other party; nil: it has the same.
	against func(*redisstore.Store) locker.Locker
	// beside is how many others hold the key all the time.
	beside int
	// replicated: the strategy has a server of its own, with replicas.
	replicated bool
	options    []redisstore.Option // of the stores
}

var strategies = []strategy{
	{name: "single", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return single.New(s) })},
	{name: "fenced", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return fenced.New(s) })},
	{name: "reentrant", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return reentrant.New(s) })},
	{name: "reentrant, nested", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return reentrant.New(s) }), nested: true},
	{
		name: "semaphore, the last of 3 permits", nodes: 1, beside: permits - 1,
		build: over(func(s *redisstore.Store) locker.Locker { return semaphore.New(s, permits) }),
	},
	{
		name: "semaphore in order, the last of 3 permits", nodes: 1, beside: permits - 1,
		build: over(func(s *redisstore.Store) locker.Locker { return semaphore.New(s, permits, semaphore.WithOrder()) }),
	},
	{name: "rwlock, a writer", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return rwlock.New(s).Writers() })},
	{
		name: "rwlock, a reader against a writer", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return rwlock.New(s).Readers() }),
		against: func(s *redisstore.Store) locker.Locker { return rwlock.New(s).Writers() },
	},
	{
		name: "single, without scripts", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return single.New(s) }),
		options: scriptless, commands: []string{"SET", "EXEC"},
	},
	{
		name: "single, with replicas", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return single.New(s) }),
		options: withReplicas, replicated: true,
	},
	{
		name: "fenced, with replicas", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return fenced.New(s) }),
		options: withReplicas, replicated: true,
	},
	{name: "redlock 2 of 3", nodes: 3, build: quorum},
	{name: "redlock 3 of 5", nodes: 5, build: quorum},
	{name: "redlock 2 of 3, without scripts", nodes: 3, build: quorum, options: scriptless},
	{name: "redlock numbered 2 of 3", nodes: 3, build: numberedQuorum},
	{name: "redlock numbered 3 of 5", nodes: 5, build: numberedQuorum},
	{
		name: "legacy-expire", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return legacy.Expire(s) }),
		commands: []string{"SETNX", "PEXPIRE", "EXEC"},
	},
	{
		name: "legacy-getset", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return legacy.GetSet(s) }),
		commands: []string{"SETNX", "GETSET", "DEL"}, ownerless: true, sendsTimes: true,
	},
	{
		name: "legacy-setbit", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return legacy.SetBit(s) }),
		ownerless: true,
	},
}

const replicas = 2 // of the replicated server

var (
	scriptless = []redisstore.Option{redisstore.WithoutScripts()}
	// less than the reply timeout of the libraries
	withReplicas = []redisstore.Option{redisstore.WithReplicas(replicas, 800*time.Millisecond)}
)

func over(build func(*redisstore.Store) locker.Locker) func([]*redisstore.Store) (locker.Locker, error) {
	return func(stores []*redisstore.Store) (locker.Locker, error) { return build(stores[0]), nil }
}

func quorum(stores []*redisstore.Store) (locker.Locker, error) {
	var nodes []locker.Locker
	for _, s := range stores {
		nodes = append(nodes, single.New(s))
	}
	return redlock.New(nodes)
}

func numberedQuorum(stores []*redisstore.Store) (locker.Locker, error) {
	var nodes []backends.FencedStore
	for _, s := range stores {
		nodes = append(nodes, s)
	}
	return redlock.NewFenced(nodes)
}

// strikes tells whether a fault meets a command.
func (s strategy) strikes(args []string, key string) bool {
	if s.commands != nil {
		return slices.Contains(s.commands, strings.ToUpper(args[0]))
	}
	return concerns(args, key)
}

// others returns what the other party locks with.
func (s strategy) others(stores []*redisstore.Store) (locker.Locker, error) {
	if s.against == nil {
		return s.build(stores)
	}
	return s.against(stores[0]), nil
}

// need returns how many nodes must have the lock.
func (s strategy) need() int { return s.nodes/2 + 1 }
