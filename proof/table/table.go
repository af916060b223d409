// Package table has one row for each strategy: how it is built, and what it promises. The simulation,
// the campaign on the wire, the laboratory and the contracts of package beneath play every row, except
// those that say why not. docs/adding-a-strategy.md says how a strategy gets its row.
package table

import (
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/locker"
)

// A Row is a strategy, as users build it.
type Row struct {
	Name   string
	Config []string // its names in package strategies
	Promises

	// Takes are the interfaces of a store that it can use. It makes most of the first.
	Takes []Kind
	// Sizes are the quorums that the simulation plays; none: it uses one store.
	Sizes []Size

	// Except are the sentences of lockertest that it does not promise, beside those that no recipe of
	// package legacy promises.
	Except     []string
	NoTransfer bool // a hold can't move to another process

	// Left are the readers that leave it out, and why.
	Left map[Reader]string

	build func(stores []any, s Setup) (locker.Locker, error)
}

// Promises are the facts about a strategy that its tests depend on.
type Promises struct {
	Numbered     bool // its grants have fences
	Shared       bool // a key has several holds
	Nested       bool // those of one owner
	Limited      bool // so many of them as Setup.Permits says
	RW           bool // readers together, or one writer
	Queued       bool // waiters stand in a queue of the store
	InOrder      bool // and nobody passes them
	HoldsInOrder bool // holds are granted in the order of a queue
	Tokens       bool // the value of a key is the token, or names it

	Legacy     bool // a recipe, which promises less
	Ownerless  bool // the store does not know the holder: a release may free the lock of another one
	SendsTimes bool // the value of a key is a time by the clock of the client that set it
	Endless    bool // what a dead holder leaves is there for ever
	// Busy tells whether a value keeps others out; nil: every value does.
	Busy func(value string, now time.Time) bool
}

// A Kind is an interface of package backends.
type Kind string

// The kinds.
const (
	Plain    Kind = "Store"
	Queued   Kind = "QueuedStore"
	Numbered Kind = "NumberedStore"
	Fenced   Kind = "FencedStore"
	Shared   Kind = "SharedStore"
	Ordered  Kind = "OrderedStore"
	Legacy   Kind = "LegacyStore"
)

// Has tells whether a store is of the kind.
func (k Kind) Has(store any) (has bool) {
	switch k {
	case Plain:
		_, has = store.(backends.Store)
	case Queued:
		_, has = store.(backends.QueuedStore)
	case Numbered:
		_, has = store.(backends.NumberedStore)
	case Fenced:
		_, has = store.(backends.FencedStore)
	case Shared:
		_, has = store.(backends.SharedStore)
	case Ordered:
		_, has = store.(backends.OrderedStore)
	case Legacy:
		_, has = store.(backends.LegacyStore)
	}
	return has
}

// A Size of a quorum: how many nodes there are, and how many must grant.
type Size struct{ Nodes, Quorum int }

// A Reader plays the rows.
type Reader string

// The readers.
const (
	Simulation Reader = "simulation" // package simulation
	Wire       Reader = "wire"       // TestFaultsOnTheWire of package campaign
	Laboratory Reader = "laboratory" // package laboratory
	Contract   Reader = "contract"   // beneath.Around and the other functions that run the contract of every strategy
)

// A Setup is how a reader builds a strategy. What a strategy does not have is ignored.
type Setup struct {
	Permits   int
	Slots     bool
	Reads     bool // build the Locker of readers and not the Locker of writers
	Quorum    int
	NodeLimit time.Duration                     // 0: the default
	Node      func(locker.Locker) locker.Locker // wraps the Locker of each node; nil: nothing does
	Seconds   bool                              // a stamp counts seconds, as old software does, in place of milliseconds
}

// New builds the strategy over stores, each of which is of one of the kinds in Takes.
func New[S any](r Row, stores []S, s Setup) (locker.Locker, error) {
	all := make([]any, len(stores))
	for i, store := range stores {
		all[i] = store
	}
	return r.build(all, s)
}

// Over is New on one store that has all kinds, which can't fail.
func Over(r Row, store any, s Setup) locker.Locker {
	l, err := r.build([]any{store}, s)
	if err != nil {
		panic(err)
	}
	return l
}

// Of returns the rows that a reader plays.
func Of(reader Reader) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Left[reader] != "" })
}

// Named returns the row of a strategy.
func Named(name string) Row {
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		panic("the table has no strategy " + name)
	}
	return rows[i]
}

// All returns all rows.
func All() []Row { return slices.Clone(rows) }
