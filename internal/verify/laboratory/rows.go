package laboratory

import (
	"github.com/lockstep-go/lockstep/backends/redisstore"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A Row is a strategy of the table, with its servers.
type Row struct {
	Name    string
	servers int // that it locks on
	quorum  int // how many of them have to grant
	build   func(stores []*redisstore.Store, quorum int) (locker.Locker, error)
	endless bool // what a dead owner leaves is there for ever, so that there is no lock of one that died to take over
}

// GetSet counts milliseconds here, so that nobody has to wait for its whole seconds.
var rows = []Row{
	one("single", func(s *redisstore.Store) locker.Locker { return single.New(s) }),
	one("fenced", func(s *redisstore.Store) locker.Locker { return fenced.New(s) }),
	one("reentrant", func(s *redisstore.Store) locker.Locker { return reentrant.New(s) }),
	{Name: "redlock-3/2", servers: 3, quorum: 2, build: plain},
	{Name: "redlock-5/3", servers: 5, quorum: 3, build: plain},
	{Name: "redlock-5/4", servers: 5, quorum: 4, build: plain},
	{Name: "redlock-fenced-5/3", servers: 5, quorum: 3, build: numbered},
	{Name: "redlock-fenced-5/4", servers: 5, quorum: 4, build: numbered},
	one("legacy-getset", func(s *redisstore.Store) locker.Locker { return legacy.GetSet(s, legacy.InMilliseconds()) }),
	one("legacy-expire", func(s *redisstore.Store) locker.Locker { return legacy.Expire(s) }),
	endless(one("legacy-setbit", func(s *redisstore.Store) locker.Locker { return legacy.SetBit(s) })),
	endless(one("legacy-getbit", func(s *redisstore.Store) locker.Locker { return legacy.GetBit(s) })),
}

func one(name string, build func(*redisstore.Store) locker.Locker) Row {
	return Row{Name: name, servers: 1, quorum: 1, build: func(stores []*redisstore.Store, _ int) (locker.Locker, error) {
		return build(stores[0]), nil
	}}
}

func endless(r Row) Row {
	r.endless = true
	return r
}

func plain(stores []*redisstore.Store, quorum int) (locker.Locker, error) {
	nodes := make([]locker.Locker, len(stores))
	for i, s := range stores {
		nodes[i] = single.New(s)
	}
	return redlock.New(nodes, redlock.WithQuorum(quorum), redlock.WithNodeLimit(slow))
}

func numbered(stores []*redisstore.Store, quorum int) (locker.Locker, error) {
	nodes := make([]backends.FencedStore, len(stores))
	for i, s := range stores {
		nodes[i] = s
	}
	return redlock.NewFenced(nodes, redlock.WithQuorum(quorum), redlock.WithNodeLimit(slow))
}

func RowNames() (names []string) {
	for _, r := range rows {
		names = append(names, r.Name)
	}
	return names
}

func rowNamed(name string) (Row, bool) {
	for _, r := range rows {
		if r.Name == name {
			return r, true
		}
	}
	return Row{}, false
}
