package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-go/lockstep/backends/redisstore"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/table"
)

// A strategy is a row of the table on a number of nodes, and one way to use it.
type strategy struct {
	table.Promises
	name  string
	nodes int
	build build

	// commands are the ones that faults meet; nil: all that concern the key.
	commands []string
	// nested: an owner has several holds at once; each operation is within another hold of its
	// owner.
	nested bool
	// against builds the Locker of the other party; nil: it has the same.
	against build
	// beside is how many others hold the key all the time.
	beside int
	// replicated: the strategy has a server of its own, with replicas.
	replicated bool
	options    []redisstore.Option // of the stores
}

type build = func(stores []*redisstore.Store) (locker.Locker, error)

// strategies are the rows of the table, each in all ways that change what is on the wire.
var strategies = func() (all []strategy) {
	rows := table.Of(table.Wire)
	for _, r := range rows {
		if len(r.Sizes) == 0 && !r.Legacy {
			all = append(all, onOneNode(r)...)
		}
	}
	for _, r := range rows {
		if r.Name == "single" || r.Name == "fenced" { // the other plain keys are written as these are
			all = append(all, onOneStore(r)...)
		}
	}
	for _, r := range rows {
		if len(r.Sizes) > 0 {
			all = append(all, onSeveralNodes(r)...)
		}
	}
	for _, r := range rows {
		if r.Legacy {
			s := of(r, 1, table.Setup{Seconds: true})
			s.commands = recipes[r.Name]
			all = append(all, s)
		}
	}
	return all
}()

// of is a row of the table.
func of(r table.Row, nodes int, setup table.Setup) strategy {
	name := r.Name
	if other := called[name]; other != "" {
		name = other
	}
	return strategy{name: name, nodes: nodes, Promises: r.Promises, build: func(stores []*redisstore.Store) (locker.Locker, error) {
		return table.New(r, stores, setup)
	}}
}

// called are the names that all campaigns have for some rows.
var called = map[string]string{"redlock-fenced": "redlock numbered", "semaphore-ordered": "semaphore in order"}

func onOneNode(r table.Row) []strategy {
	s := of(r, 1, table.Setup{Permits: permits})
	switch {
	case r.Limited:
		s.name, s.beside = fmt.Sprintf("%s, the last of %d permits", s.name, permits), permits-1
		return []strategy{s}
	case r.RW:
		s.name += ", a writer"
		reader := of(r, 1, table.Setup{Reads: true})
		reader.name, reader.against = reader.name+", a reader against a writer", s.build
		return []strategy{s, reader}
	case r.Nested:
		nested := s
		nested.name, nested.nested = s.name+", nested", true
		return []strategy{s, nested}
	}
	return []strategy{s}
}

// onOneStore are ways of the store.
func onOneStore(r table.Row) (all []strategy) {
	if !r.Numbered {
		without := of(r, 1, table.Setup{})
		without.name, without.options, without.commands = without.name+", without scripts", scriptless, []string{"SET", "EXEC"}
		all = append(all, without)
	}
	with := of(r, 1, table.Setup{})
	with.name, with.options, with.replicated = with.name+", with replicas", withReplicas, true
	return append(all, with)
}

func onSeveralNodes(r table.Row) (all []strategy) {
	for _, nodes := range []int{3, 5} {
		s := of(r, nodes, table.Setup{})
		s.name = fmt.Sprintf("%s %d of %d", s.name, s.need(), nodes)
		all = append(all, s)
	}
	if !r.Numbered {
		without := all[0]
		without.name, without.options = without.name+", without scripts", scriptless
		all = append(all, without)
	}
	return all
}

// recipes are the commands of them that faults meet; none: all that concern the key.
var recipes = map[string][]string{
	"legacy-expire": {"SETNX", "PEXPIRE", "EXEC"},
	"legacy-getset": {"SETNX", "GETSET", "DEL"},
}

const replicas = 2 // of the replicated server

var (
	scriptless = []redisstore.Option{redisstore.WithoutScripts()}
	// less than the reply timeout of the libraries
	withReplicas = []redisstore.Option{redisstore.WithReplicas(replicas, 800*time.Millisecond)}
)

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
	return s.against(stores)
}

// need returns how many nodes must have the lock.
func (s strategy) need() int { return s.nodes/2 + 1 }
