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
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A strategy is one under test, on so many nodes.
type strategy struct {
	name  string
	nodes int
	build func(stores []*redisstore.Store) (locker.Locker, error)

	// commands are those that faults strike, if not all that concern the key.
	commands []string
	// ownerless: nothing in the store tells whose a lock is. An attempt with an unknown outcome is not cleaned up, and a release
	// that is repeated may free another's lock. The doc comments of these recipes say so.
	ownerless bool
	// sendsTimes: what lies in the store is a time by the clock of who put it there.
	sendsTimes bool
	// nested: owners have several holds at once, and what is done is done within another hold of the same owner.
	nested bool
	// replicated: on a server with replicas, of its own.
	replicated bool
	options    []redisstore.Option // of the stores
}

var strategies = []strategy{
	{name: "single", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return single.New(s) })},
	{name: "fenced", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return fenced.New(s) })},
	{name: "reentrant", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return reentrant.New(s) })},
	{name: "reentrant, nested", nodes: 1, build: over(func(s *redisstore.Store) locker.Locker { return reentrant.New(s) }), nested: true},
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

const replicas = 2 // of the server that has any

var (
	scriptless   = []redisstore.Option{redisstore.WithoutScripts()}
	withReplicas = []redisstore.Option{redisstore.WithReplicas(replicas, 800*time.Millisecond)} // less than a library waits for a reply
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

// strikes tells whether a command is one that a fault is meant for.
func (s strategy) strikes(args []string, key string) bool {
	if s.commands != nil {
		return slices.Contains(s.commands, strings.ToUpper(args[0]))
	}
	return concerns(args, key)
}

// need is how many nodes have to hold a lock.
func (s strategy) need() int { return s.nodes/2 + 1 }
