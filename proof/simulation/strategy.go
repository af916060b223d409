package simulation

import (
	"strconv"
	"strings"
	"time"

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

// A Strategy is a strategy under test, as users build it.
type Strategy struct {
	Name          string
	Nodes, Quorum int
	Numbered      bool // its grants have fences
	Shared        bool // a key has several holds
	Nested        bool // those of one owner
	Permits       int  // so many of them, of a semaphore; 0: it is none
	RW            bool // readers together, or one writer
	Legacy        bool // a recipe, which promises less
	Queued        bool // waiters stand in a queue of the store
	InOrder       bool // and nobody passes them
	Mixed         bool // the processes use different strategies with the queue
	Sequential    bool // the nodes are asked one after the other
	Tokens        bool // the value of a key is the token, or names it

	build func(nodes []*link) (locker.Locker, error)
	// whether a value keeps others out; nil: every value does
	busy func(value string, now time.Time) bool
}

// Strategies are all of them.
func Strategies() []Strategy {
	all := []Strategy{
		{Name: "single", Nodes: 1, Quorum: 1, Tokens: true, Queued: true, build: one(func(l *link) locker.Locker { return single.New(l) })},
		{Name: "fair", Nodes: 1, Quorum: 1, Tokens: true, Queued: true, InOrder: true, build: one(func(l *link) locker.Locker { return fair.New(l) })},
		{Name: "fenced", Nodes: 1, Quorum: 1, Tokens: true, Numbered: true, Queued: true, build: one(func(l *link) locker.Locker { return fenced.New(l) })},
		{Name: "mixed", Nodes: 1, Quorum: 1, Tokens: true, Numbered: true, Queued: true, Mixed: true, build: one(ofTheQueue)},
		{Name: "reentrant", Nodes: 1, Quorum: 1, Tokens: true, Shared: true, Nested: true, build: one(func(l *link) locker.Locker { return reentrant.New(l) })},
		{Name: "semaphore", Nodes: 1, Quorum: 1, Tokens: true, Shared: true, Permits: 2, build: one(func(l *link) locker.Locker {
			if l.h.Slots {
				return semaphore.New(l, 2, semaphore.WithSlots())
			}
			return semaphore.New(l, 2)
		})},
		{Name: "semaphore-ordered", Nodes: 1, Quorum: 1, Tokens: true, Shared: true, Permits: 2, build: one(func(l *link) locker.Locker {
			return semaphore.New(l, 2, semaphore.WithOrder())
		})},
		{Name: "semaphore-limits", Nodes: 1, Quorum: 1, Tokens: true, Shared: true, Permits: 3, build: one(twoOrThree)},
		{Name: "rwlock", Nodes: 1, Quorum: 1, Tokens: true, Shared: true, RW: true, Numbered: true, build: one(readerOrWriter)},
	}
	for _, q := range [][2]int{{3, 2}, {3, 3}, {5, 3}, {5, 4}} {
		all = append(all, quorum("redlock", q, false), quorum("redlock-fenced", q, true))
	}
	for _, q := range [][2]int{{3, 2}, {5, 4}} {
		all = append(all, quorum("redlock-sequential", q, false, redlock.WithSequential()))
	}
	all = append(all, quorumOfReaders([2]int{3, 2}), quorumOfReaders([2]int{5, 4}))
	return append(all,
		Strategy{Name: "legacy-getset", Nodes: 1, Quorum: 1, Legacy: true, busy: stampToCome, build: one(func(l *link) locker.Locker {
			return legacy.GetSet(l, legacy.InMilliseconds())
		})},
		Strategy{Name: "legacy-expire", Nodes: 1, Quorum: 1, Legacy: true, build: one(func(l *link) locker.Locker { return legacy.Expire(l) })},
		Strategy{Name: "legacy-setbit", Nodes: 1, Quorum: 1, Legacy: true, busy: bitOn, build: one(func(l *link) locker.Locker { return legacy.SetBit(l) })},
	)
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

// ofTheQueue returns single, fair or fenced. Processes with neighbouring numbers get different
// ones.
func ofTheQueue(l *link) locker.Locker {
	number, _ := strconv.Atoi(strings.TrimPrefix(l.from.name, "c"))
	switch (throwFor(l.h.Seed, "mix").IntN(3) + number) % 3 {
	case 0:
		return single.New(l)
	case 1:
		return fair.New(l)
	}
	return fenced.New(l)
}

// twoOrThree returns a semaphore of two or of three permits, as when a limit is being changed.
func twoOrThree(l *link) locker.Locker {
	return semaphore.New(l, 2+throwFor(l.h.Seed, "limit", l.from.name).IntN(2))
}

// readerOrWriter returns the Locker for readers or that for writers. Two of three processes with
// neighbouring numbers read.
func readerOrWriter(l *link) locker.Locker {
	rw := rwlock.New(l)
	if writes(l.h.Seed, l.from.name) {
		return rw.Writers()
	}
	return rw.Readers()
}

// writes tells whether a process writes.
func writes(seed uint64, client string) bool {
	number, _ := strconv.Atoi(strings.TrimPrefix(client, "c"))
	return (throwFor(seed, "rw").IntN(3)+number)%3 == 0
}

// ordersHolds tells whether holds are granted in the order of a queue.
func (s Strategy) ordersHolds() bool { return s.RW || s.Name == "semaphore-ordered" }

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

func one(build func(*link) locker.Locker) func([]*link) (locker.Locker, error) {
	return func(nodes []*link) (locker.Locker, error) { return build(nodes[0]), nil }
}

func quorum(name string, q [2]int, numbers bool, opts ...redlock.Option) Strategy {
	s := Strategy{Name: name + "-" + strconv.Itoa(q[0]) + "/" + strconv.Itoa(q[1]), Nodes: q[0], Quorum: q[1], Tokens: true, Numbered: numbers}
	s.Sequential = len(opts) > 0
	opts = append(opts, redlock.WithQuorum(s.Quorum))
	s.build = func(nodes []*link) (locker.Locker, error) {
		if numbers {
			stores := make([]backends.FencedStore, len(nodes))
			for i, n := range nodes {
				stores[i] = n
			}
			return redlock.NewFenced(stores, opts...)
		}
		lockers := make([]locker.Locker, len(nodes))
		for i, n := range nodes {
			lockers[i] = single.New(n)
		}
		return redlock.New(lockers, opts...)
	}
	return s
}

// quorumOfReaders is a read-write lock on several nodes.
func quorumOfReaders(q [2]int) Strategy {
	s := quorum("redlock-rwlock", q, false)
	s.Shared, s.RW = true, true
	s.build = func(nodes []*link) (locker.Locker, error) {
		lockers := make([]locker.Locker, len(nodes))
		for i, n := range nodes {
			lockers[i] = readerOrWriter(n)
		}
		return redlock.New(lockers, redlock.WithQuorum(s.Quorum))
	}
	return s
}

// Bears returns how many nodes may forget during the life of a lease without a second holder.
func (s Strategy) Bears() int { return 2*s.Quorum - s.Nodes - 1 }

// enough returns how many nodes keep everyone else from a quorum.
func (s Strategy) enough() int { return s.Nodes - s.Quorum + 1 }

func stampToCome(value string, now time.Time) bool {
	stamp, err := strconv.ParseInt(value, 10, 64)
	return err != nil || stamp > now.UnixMilli()
}

func bitOn(value string, _ time.Time) bool { return value != "" && value[0]&0x80 != 0 }
