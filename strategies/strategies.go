// Package strategies chooses a strategy by name, for configuration files and flags. A program that
// knows its strategy at compile time calls the constructors of the packages below instead. There a
// store that does not fit the strategy does not compile.
package strategies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// Config names a strategy, a backend and its servers.
type Config struct {
	Strategy string   `json:"strategy"`          // one of [Names]
	Backend  string   `json:"backend"`           // one of the names in the Backends given to [New]
	Addrs    []string `json:"addrs"`             // of the stores: one address, or one for each node of a quorum
	Quorum   int      `json:"quorum,omitempty"`  // redlock.WithQuorum; 0: the default
	Drift    float64  `json:"drift,omitempty"`   // redlock.WithDrift; 0: the default
	Permits  int      `json:"permits,omitempty"` // of a semaphore: how many may hold a key at once
	Order    bool     `json:"order,omitempty"`   // semaphore.WithOrder
	Slots    bool     `json:"slots,omitempty"`   // semaphore.WithSlots
}

// Backends are the stores to choose from, by name. The program lists them, so its binary contains
// only the client libraries that it wants.
type Backends map[string]Open

// Open opens the store at addr. The store must have the capability that the strategy needs, or
// [New] fails. closeStore may be nil.
type Open func(ctx context.Context, addr string) (store backends.Store, closeStore func() error, err error)

// Names returns the names of the strategies, sorted.
func Names() []string { return slices.Sorted(maps.Keys(strategies)) }

// strategy says how to build a Locker.
type strategy struct {
	needs   string // the interface of package backends
	quorum  bool   // uses several stores
	permits bool   // has a number of permits
	build   func(stores []backends.Store, c Config) (locker.Locker, error)
}

var strategies = map[string]strategy{
	"single":    {"Store", false, false, one(single.New)},
	"fair":      {"QueuedStore", false, false, one(fair.New)},
	"fenced":    {"NumberedStore", false, false, one(fenced.New)},
	"reentrant": {"SharedStore", false, false, one(reentrant.New)},
	"semaphore": {"SharedStore", false, true, permits},
	"rw-readers": {"OrderedStore", false, false, one(func(s backends.OrderedStore) locker.Locker {
		return rwlock.New(s).Readers()
	})},
	"rw-writers": {"OrderedStore", false, false, one(func(s backends.OrderedStore) locker.Locker {
		return rwlock.New(s).Writers()
	})},
	"legacy-getset": {"LegacyStore", false, false, one(func(s backends.LegacyStore) locker.Locker {
		return legacy.GetSet(s)
	})},
	"legacy-expire":  {"LegacyStore", false, false, one(legacy.Expire)},
	"legacy-setbit":  {"LegacyStore", false, false, one(legacy.SetBit)},
	"legacy-getbit":  {"LegacyStore", false, false, one(legacy.GetBit)},
	"redlock":        {"Store", true, false, plain},
	"redlock-fenced": {"FencedStore", true, false, numbered},
}

// New opens the stores, checks them and returns the Locker that c describes. closeStores closes the
// stores. If the name of a strategy or backend does not exist, the error lists the names that do.
// If the backend lacks the capability that the strategy needs, the error lists the strategies that
// the backend can serve.
//
// For a quorum, New calls [backends.CheckNodes]: nodes that are the same server, or a replica, are
// an error. Nodes may be unreachable, as many as the quorum can do without.
func New(ctx context.Context, c Config, from Backends) (l locker.Locker, closeStores func() error, err error) {
	s, known := strategies[c.Strategy]
	open := from[c.Backend]
	switch {
	case !known:
		return nil, nil, fail("no strategy %q: choose one of %s", c.Strategy, list(Names()))
	case open == nil:
		return nil, nil, fail("no backend %q: choose one of %s", c.Backend, list(slices.Sorted(maps.Keys(from))))
	case s.quorum && len(c.Addrs) == 1:
		return nil, nil, fail("strategy %q needs several stores, and Addrs has one address", c.Strategy)
	case len(c.Addrs) == 0:
		return nil, nil, fail("no addresses of stores: set Addrs")
	case !s.quorum && len(c.Addrs) > 1:
		return nil, nil, fail("strategy %q uses one store, and Addrs has %d addresses; several stores are used by %s",
			c.Strategy, len(c.Addrs), list(ofQuorums()))
	case s.permits && c.Permits < 1:
		return nil, nil, fail("strategy %q of %d permits admits nobody: set Permits to 1 or more", c.Strategy, c.Permits)
	case !s.permits && (c.Permits != 0 || c.Order || c.Slots):
		return nil, nil, fail("strategy %q has no permits; Permits, Order and Slots are options of semaphore", c.Strategy)
	case c.Slots && c.Permits > backends.MaxSlots:
		return nil, nil, fail("strategy %q of %d permits is too large for Slots: set Permits to %d or less", c.Strategy, c.Permits, backends.MaxSlots)
	case !s.quorum && (c.Quorum != 0 || c.Drift != 0):
		return nil, nil, fail("strategy %q has no quorum and no drift; these are options of %s", c.Strategy, list(ofQuorums()))
	}
	var opened closers
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	stores := make([]backends.Store, len(c.Addrs))
	for i, addr := range c.Addrs {
		store, closeStore, err := open(ctx, addr)
		if err != nil {
			return nil, nil, &openError{backend: c.Backend, addr: addr, err: err}
		}
		opened = append(opened, closeStore)
		stores[i] = store
	}
	if l, err = s.build(stores, c); err != nil {
		if errors.Is(err, errCapability) {
			needs := fmt.Sprintf("%q needs a backends.%s", c.Strategy, s.needs)
			if c.Order {
				needs = fmt.Sprintf("%q with Order needs a backends.OrderedStore", c.Strategy)
			}
			err = fail("strategy %s, which %q is not: choose one of %s, or another backend", needs, c.Backend, list(possible(stores[0])))
		}
		return nil, nil, err
	}
	if s.quorum {
		if err := check(ctx, stores, cmp.Or(c.Quorum, len(stores)/2+1)); err != nil {
			return nil, nil, err
		}
	}
	return l, opened.close, nil
}

// closers close the stores in the reverse order of opening.
type closers []func() error

func (cs closers) close() error {
	var errs []error
	for _, c := range slices.Backward(cs) {
		if c != nil {
			errs = append(errs, c())
		}
	}
	return errors.Join(errs...)
}

// errCapability says that a store lacks the capability that the strategy needs.
var errCapability = errors.New("missing capability")

// one builds a strategy that uses one store.
func one[S any](build func(S) locker.Locker) func([]backends.Store, Config) (locker.Locker, error) {
	return func(stores []backends.Store, _ Config) (locker.Locker, error) {
		s, ok := stores[0].(S)
		if !ok {
			return nil, errCapability
		}
		return build(s), nil
	}
}

func permits(stores []backends.Store, c Config) (locker.Locker, error) {
	var opts []semaphore.Option
	if _, ordered := stores[0].(backends.OrderedStore); c.Order && !ordered {
		return nil, errCapability
	} else if c.Order {
		opts = append(opts, semaphore.WithOrder())
	}
	if c.Slots {
		opts = append(opts, semaphore.WithSlots())
	}
	return one(func(s backends.SharedStore) locker.Locker { return semaphore.New(s, c.Permits, opts...) })(stores, c)
}

func plain(stores []backends.Store, c Config) (locker.Locker, error) {
	nodes := make([]locker.Locker, len(stores))
	for i, s := range stores {
		nodes[i] = single.New(s)
	}
	return redlock.New(nodes, options(c)...)
}

func numbered(stores []backends.Store, c Config) (locker.Locker, error) {
	nodes := make([]backends.FencedStore, len(stores))
	for i, s := range stores {
		var ok bool
		if nodes[i], ok = s.(backends.FencedStore); !ok {
			return nil, errCapability
		}
	}
	return redlock.NewFenced(nodes, options(c)...)
}

func options(c Config) (opts []redlock.Option) {
	if c.Quorum != 0 {
		opts = append(opts, redlock.WithQuorum(c.Quorum))
	}
	if c.Drift != 0 {
		opts = append(opts, redlock.WithDrift(c.Drift))
	}
	return opts
}

// check accepts unreachable nodes, as many as the quorum can do without.
func check(ctx context.Context, stores []backends.Store, quorum int) error {
	nodes := make([]backends.Identifier, len(stores))
	for i, s := range stores {
		var ok bool
		if nodes[i], ok = s.(backends.Identifier); !ok {
			return fail("node %d is no backends.Identifier, so the nodes may be one server", i+1)
		}
	}
	err := backends.CheckNodes(ctx, nodes...)
	var found *backends.NodesError
	if errors.As(err, &found) && len(found.Same)+len(found.Followers) == 0 && len(found.Unreachable) <= len(stores)-quorum {
		return nil
	}
	return err
}

// possible returns the names of the strategies that can use stores like s.
func possible(s backends.Store) (names []string) {
	_, queues := s.(backends.QueuedStore)
	_, numbers := s.(backends.NumberedStore)
	_, counts := s.(backends.FencedStore)
	_, shares := s.(backends.SharedStore)
	_, orders := s.(backends.OrderedStore)
	_, old := s.(backends.LegacyStore)
	has := map[string]bool{
		"Store": true, "QueuedStore": queues, "NumberedStore": numbers, "FencedStore": counts,
		"SharedStore": shares, "OrderedStore": orders, "LegacyStore": old,
	}
	for _, name := range Names() {
		if has[strategies[name].needs] {
			names = append(names, name)
		}
	}
	return names
}

func ofQuorums() (names []string) {
	for _, name := range Names() {
		if strategies[name].quorum {
			names = append(names, name)
		}
	}
	return names
}

func list(names []string) string { return strings.Join(names, ", ") }

func fail(format string, args ...any) error { return fmt.Errorf("lockstep: choose: "+format, args...) }
