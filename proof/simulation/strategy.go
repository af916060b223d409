package simulation

import (
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/proof/table"
)

// A Strategy is a strategy under test: a row of the table, with its number of nodes.
type Strategy struct {
	Name          string
	Nodes, Quorum int
	table.Promises
	Permits int  // of a semaphore; 0: it is none
	Mixed   bool // the processes use different strategies with the queue

	build func(nodes []*link) (locker.Locker, error)
}

// Strategies are all of them.
func Strategies() (all []Strategy) {
	for _, r := range table.Of(table.Simulation) {
		if len(r.Sizes) == 0 {
			all = append(all, of(r, table.Size{Nodes: 1, Quorum: 1}))
		}
		for _, size := range r.Sizes {
			s := of(r, size)
			s.Name += "-" + strconv.Itoa(size.Nodes) + "/" + strconv.Itoa(size.Quorum)
			all = append(all, s)
		}
	}
	return append(all, mixed(), limits())
}

// permits is the limit of the semaphores.
const permits = 2

// of is a row of the table on some nodes.
func of(r table.Row, size table.Size) Strategy {
	s := Strategy{Name: r.Name, Nodes: size.Nodes, Quorum: size.Quorum, Promises: r.Promises}
	if r.Limited {
		s.Permits = permits
	}
	s.build = func(nodes []*link) (locker.Locker, error) {
		l := nodes[0]
		return table.New(r, nodes, table.Setup{
			Permits: permits, Slots: l.h.Slots, Reads: !writes(l.h.Seed, l.from.name), Quorum: size.Quorum,
		})
	}
	return s
}

// mixed are single, fair and fenced on one key. Processes with neighbouring numbers get different
// ones.
func mixed() Strategy {
	s := Strategy{Name: "mixed", Nodes: 1, Quorum: 1, Mixed: true, Promises: table.Promises{Tokens: true, Numbered: true, Queued: true}}
	s.build = func(nodes []*link) (locker.Locker, error) {
		l := nodes[0]
		number, _ := strconv.Atoi(strings.TrimPrefix(l.from.name, "c"))
		name := []string{"single", "fair", "fenced"}[(throwFor(l.h.Seed, "mix").IntN(3)+number)%3]
		return table.New(table.Named(name), nodes, table.Setup{})
	}
	return s
}

// limits is a semaphore of two or of three permits, as when a limit is being changed.
func limits() Strategy {
	s := of(table.Named("semaphore"), table.Size{Nodes: 1, Quorum: 1})
	s.Name, s.Permits = "semaphore-limits", permits+1
	s.build = func(nodes []*link) (locker.Locker, error) {
		l := nodes[0]
		limit := permits + throwFor(l.h.Seed, "limit", l.from.name).IntN(2)
		return table.New(table.Named("semaphore"), nodes, table.Setup{Permits: limit})
	}
	return s
}

// StrategyNamed finds a strategy by its name.
func StrategyNamed(name string) (Strategy, bool) {
	for _, s := range Strategies() {
		if s.Name == name {
			return s, true
		}
	}
	return Strategy{}, false
}

// writes tells whether a process writes. Two of three processes with neighbouring numbers read.
func writes(seed uint64, client string) bool {
	number, _ := strconv.Atoi(strings.TrimPrefix(client, "c"))
	return (throwFor(seed, "rw").IntN(3)+number)%3 == 0
}

// lines tells whether waiters stand in the queue of one node. Far is about them: in a quorum no queue
// decides, and the recipes have none.
func (s Strategy) lines() bool { return s.Nodes == 1 && !s.Legacy }

// hasSlots tells whether the permits of a schedule have slots, as in half of those of "semaphore".
func (s Strategy) hasSlots(seed uint64) bool {
	return s.Name == "semaphore" && throwFor(seed, "slots").chance(0.5)
}

// exclusion is the invariant that says who may hold a key together.
func (s Strategy) exclusion() Invariant {
	switch {
	case s.Permits > 0:
		return SEM
	case s.RW:
		return RW
	}
	return ME
}

// Bears returns how many nodes may forget during the life of a lease without a second holder.
func (s Strategy) Bears() int { return 2*s.Quorum - s.Nodes - 1 }

// enough returns how many nodes keep everyone else from a quorum.
func (s Strategy) enough() int { return s.Nodes - s.Quorum + 1 }
