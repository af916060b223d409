package strategies_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/proof/table"
	"github.com/lockstep-go/lockstep/strategies"
)

func TestEveryNameIsAStrategyThatLocks(t *testing.T) {
	for _, name := range strategies.Names() {
		t.Run(name, func(t *testing.T) {
			row := rowOf(t, name)
			c := strategies.Config{Strategy: name, Backend: "memory", Addrs: []string{"a"}}
			if len(row.Sizes) > 0 {
				c.Addrs, c.Quorum, c.Drift = []string{"a", "b", "c", "d", "e"}, 4, 0.02
			}
			if row.Limited {
				c.Permits = 1
			}
			f := newFarm()
			l, closeStores, err := strategies.New(t.Context(), c, f.backends())
			if err != nil {
				t.Fatal(err)
			}
			req := contract.Request{Key: "k", Token: contract.NewToken(), TTL: time.Second}
			lease, err := l.Acquire(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if row.Numbered != (lease.Fence > 0) {
				t.Errorf("Fence = %d", lease.Fence)
			}
			req.Token = contract.NewToken()
			again, err := l.Acquire(t.Context(), req)
			if together := name == "rw-readers"; together && again.Holds != 2 || !together && !errors.Is(err, locker.ErrHeld) {
				t.Errorf("Acquire of a lock that is held = %+v, %v", again, err)
			}
			if err := l.Release(t.Context(), lease); err != nil {
				t.Error(err)
			}
			if err := closeStores(); err != nil || len(f.closed) != len(c.Addrs) {
				t.Errorf("closed %v: %v", f.closed, err)
			}
		})
	}
}

// rowOf returns the row of the table that has the name here.
func rowOf(t *testing.T, name string) table.Row {
	for _, r := range table.All() {
		if slices.Contains(r.Config, name) {
			return r
		}
	}
	t.Fatalf("%s is in no row of proof/table, so nothing tests it", name)
	return table.Row{}
}

func TestTheOptionsOfASemaphoreAreInItsConfig(t *testing.T) {
	for _, c := range []strategies.Config{
		{Permits: 3}, {Permits: 3, Order: true}, {Permits: 3, Slots: true}, {Permits: 3, Order: true, Slots: true},
	} {
		c.Strategy, c.Backend, c.Addrs = "semaphore", "asked", []string{"a"}
		store := &asked{Store: memory.New()}
		l, _, err := strategies.New(t.Context(), c, strategies.Backends{
			"asked": func(context.Context, string) (backends.Store, func() error, error) { return store, nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context(), contract.Request{Key: "k", Token: contract.NewToken(), TTL: time.Second}); err != nil {
			t.Fatal(err)
		}
		if a := store.admission; a.Limit != c.Permits || a.InOrder != c.Order || a.Slots != c.Slots {
			t.Errorf("%+v asks the store for %+v", c, a)
		}
	}
}

// asked is a store that keeps what Enter was given last.
type asked struct {
	*memory.Store
	admission backends.Admission
}

func (s *asked) Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error) {
	s.admission = a
	return s.Store.Enter(ctx, key, token, ttl, a)
}

func TestWhatCannotBeChosenIsAnErrorThatListsWhatCan(t *testing.T) {
	five := []string{"a", "b", "c", "d", "e"}
	var fit []string // what a plain store can serve
	for _, name := range strategies.Names() {
		if slices.Contains(rowOf(t, name).Takes, table.Plain) {
			fit = append(fit, name)
		}
	}
	narrow := strings.Join(fit, ", ")
	for says, c := range map[string]strategies.Config{
		`no strategy "rdlock": choose one of ` + strings.Join(strategies.Names(), ", "):                 {Strategy: "rdlock", Backend: "memory", Addrs: five[:1]},
		`no backend "redis": choose one of broken, memory, narrow, replica, stranger, twice, unordered`: {Strategy: "single", Backend: "redis", Addrs: five[:1]},
		`strategy "redlock" needs several stores, and Addrs has one address`:                            {Strategy: "redlock", Backend: "memory", Addrs: five[:1]},
		`no addresses of stores: set Addrs`:                                                             {Strategy: "single", Backend: "memory"},
		`strategy "fenced" uses one store, and Addrs has 5 addresses; several stores are used by redlock`: {
			Strategy: "fenced", Backend: "memory", Addrs: five},
		`strategy "single" has no quorum and no drift; these are options of redlock`: {
			Strategy: "single", Backend: "memory", Addrs: five[:1], Quorum: 1},
		`strategy "reentrant" needs a backends.SharedStore, which "narrow" is not: choose one of ` + narrow + `, or another backend`: {
			Strategy: "reentrant", Backend: "narrow", Addrs: five[:1]},
		`strategy "fair" needs a backends.QueuedStore, which "narrow" is not: choose one of ` + narrow + `, or another backend`: {
			Strategy: "fair", Backend: "narrow", Addrs: five[:1]},
		`strategy "redlock-fenced" needs a backends.FencedStore, which "narrow" is not: choose one of ` + narrow + `, or another backend`: {
			Strategy: "redlock-fenced", Backend: "narrow", Addrs: five},
		`strategy "semaphore" of 0 permits admits nobody: set Permits to 1 or more`: {Strategy: "semaphore", Backend: "memory", Addrs: five[:1]},
		`strategy "semaphore" of 2048 permits is too large for Slots: set Permits to 2047 or less`: {
			Strategy: "semaphore", Backend: "memory", Addrs: five[:1], Permits: 2048, Slots: true},
		`strategy "fair" has no permits; Permits, Order and Slots are options of semaphore`: {
			Strategy: "fair", Backend: "memory", Addrs: five[:1], Order: true},
		`strategy "rw-readers" has no permits; Permits, Order and Slots are options of semaphore`: {
			Strategy: "rw-readers", Backend: "memory", Addrs: five[:1], Slots: true},
		`strategy "semaphore" with Order needs a backends.OrderedStore, which "unordered" is not: choose one of `: {
			Strategy: "semaphore", Backend: "unordered", Addrs: five[:1], Permits: 1, Order: true},
		`quorum 2 of 5 nodes is not within 3 and 5`: {Strategy: "redlock", Backend: "memory", Addrs: five, Quorum: 2},
		`drift 0.001 is not within 0.01 and 1`:      {Strategy: "redlock", Backend: "memory", Addrs: five, Drift: 0.001},
		`nodes 1 and 2 are the same`:                {Strategy: "redlock", Backend: "twice", Addrs: five},
		`node 3 is a replica`:                       {Strategy: "redlock", Backend: "replica", Addrs: five},
		`node 1 is no backends.Identifier`:          {Strategy: "redlock", Backend: "stranger", Addrs: five},
		`open broken at "b": down`:                  {Strategy: "redlock", Backend: "broken", Addrs: []string{"a", "b"}},
	} {
		f := newFarm()
		_, _, err := strategies.New(t.Context(), c, f.backends())
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v:\n%v; want\n%s", c, err, says)
		}
		if len(f.closed) != len(f.stores) {
			t.Errorf("%+v: %d stores opened, %v closed", c, len(f.stores), f.closed)
		}
	}
}

func TestAsManyNodesMayBeUnreachableAsTheQuorumCanDoWithout(t *testing.T) {
	for down := range 5 {
		for quorum := 3; quorum <= 5; quorum++ {
			f := newFarm()
			f.down = down
			_, _, err := strategies.New(t.Context(), strategies.Config{
				Strategy: "redlock", Backend: "memory", Addrs: []string{"a", "b", "c", "d", "e"}, Quorum: quorum,
			}, f.backends())
			if bad := down > 5-quorum; bad != (err != nil) || bad && !errors.Is(err, errDown) {
				t.Errorf("quorum %d of 5, %d down: %v", quorum, down, err)
			}
		}
	}
}

var errDown = errors.New("down")

// farm opens stores.
type farm struct {
	stores []backends.Store
	closed []string
	down   int // the first nodes, this many, can't be reached
}

func newFarm() *farm { return &farm{} }

func (f *farm) backends() strategies.Backends {
	open := func(build func() backends.Store) strategies.Open {
		return func(_ context.Context, addr string) (backends.Store, func() error, error) {
			s := build()
			f.stores = append(f.stores, s)
			return s, func() error { f.closed = append(f.closed, addr); return nil }, nil
		}
	}
	one := memory.New()
	return strategies.Backends{
		"memory": open(func() backends.Store {
			if len(f.stores) < f.down {
				return node{Store: memory.New(), err: errDown}
			}
			return memory.New().Legacy()
		}),
		"narrow":   open(func() backends.Store { return node{Store: memory.New()} }),
		"stranger": open(func() backends.Store { return struct{ backends.Store }{memory.New()} }),
		"unordered": open(func() backends.Store {
			return struct {
				backends.Store
				sharing
			}{memory.New(), memory.New()}
		}),
		"twice": open(func() backends.Store { return node{Store: one} }),
		"replica": open(func() backends.Store {
			if len(f.stores) == 2 {
				return node{Store: memory.New(), role: "slave"}
			}
			return node{Store: memory.New()}
		}),
		"broken": func(ctx context.Context, addr string) (backends.Store, func() error, error) {
			if addr == "b" {
				return nil, nil, errDown
			}
			return open(func() backends.Store { return memory.New() })(ctx, addr)
		},
	}
}

// sharing is a SharedStore that keeps no queue.
type sharing interface {
	Enter(ctx context.Context, key, token string, ttl time.Duration, a backends.Admission) (backends.Result, error)
	Renew(ctx context.Context, key, token string, ttl time.Duration) (bool, error)
	Leave(ctx context.Context, key, token string) (bool, error)
}

// node is a Store that is also an Identifier, and nothing more.
type node struct {
	backends.Store
	role string
	err  error
}

func (n node) Identify(ctx context.Context) (backends.Identity, error) {
	id, err := n.Store.(backends.Identifier).Identify(ctx)
	if n.role != "" {
		id.Role = n.role
	}
	return id, errors.Join(err, n.err)
}

func TestNamesAreSortedAndComplete(t *testing.T) {
	if !slices.IsSorted(strategies.Names()) {
		t.Errorf("Names() = %v", strategies.Names())
	}
	for _, r := range table.All() {
		for _, name := range r.Config {
			if !slices.Contains(strategies.Names(), name) {
				t.Errorf("%s can be chosen as %s, says proof/table, and it can't: Names() = %v", r.Name, name, strategies.Names())
			}
		}
	}
}
