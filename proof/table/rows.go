package table

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
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

var rows = []Row{
	{
		Name: "single", Config: []string{"single"}, Takes: []Kind{Queued, Plain},
		Promises: Promises{Tokens: true, Queued: true},
		build:    over(func(s backends.Store, _ Setup) locker.Locker { return single.New(s) }),
	},
	{
		Name: "fair", Config: []string{"fair"}, Takes: []Kind{Queued},
		Promises: Promises{Tokens: true, Queued: true, InOrder: true},
		Left:     map[Reader]string{Wire: "it sends the commands of single"},
		build:    over(func(s backends.QueuedStore, _ Setup) locker.Locker { return fair.New(s) }),
	},
	{
		Name: "fenced", Config: []string{"fenced"}, Takes: []Kind{Numbered},
		Promises: Promises{Tokens: true, Numbered: true, Queued: true},
		build:    over(func(s backends.NumberedStore, _ Setup) locker.Locker { return fenced.New(s) }),
	},
	{
		Name: "reentrant", Config: []string{"reentrant"}, Takes: []Kind{Ordered, Shared},
		Promises: Promises{Tokens: true, Shared: true, Nested: true},
		Except:   []string{"a lock is held for its own owner too, if the token is new"}, // it is granted
		build:    over(func(s backends.SharedStore, _ Setup) locker.Locker { return reentrant.New(s) }),
	},
	{
		Name: "semaphore", Config: []string{"semaphore"}, Takes: []Kind{Ordered, Shared},
		Promises: Promises{Tokens: true, Shared: true, Limited: true},
		build: over(func(s backends.SharedStore, o Setup) locker.Locker {
			if o.Slots {
				return semaphore.New(s, o.Permits, semaphore.WithSlots())
			}
			return semaphore.New(s, o.Permits)
		}),
	},
	{
		Name: "semaphore-ordered", Takes: []Kind{Ordered},
		Promises: Promises{Tokens: true, Shared: true, Limited: true, HoldsInOrder: true},
		Left: map[Reader]string{
			Laboratory: "its faults meet it as they meet semaphore",
			Contract:   "it is semaphore with an option; strategies/semaphore runs its contract",
		},
		build: over(func(s backends.OrderedStore, o Setup) locker.Locker {
			return semaphore.New(s, o.Permits, semaphore.WithOrder())
		}),
	},
	{
		Name: "rwlock", Config: []string{"rw-readers", "rw-writers"}, Takes: []Kind{Ordered},
		Promises: Promises{Tokens: true, Shared: true, RW: true, HoldsInOrder: true, Numbered: true},
		build:    over(readersOrWriters),
	},
	{
		Name: "redlock", Config: []string{"redlock"}, Takes: []Kind{Queued, Plain}, Sizes: []Size{{3, 2}, {3, 3}, {5, 3}, {5, 4}},
		Promises: Promises{Tokens: true},
		Except:   aQuorum,
		build:    quorum(func(s backends.Store, _ Setup) locker.Locker { return single.New(s) }),
	},
	{
		Name: "redlock-fenced", Config: []string{"redlock-fenced"}, Takes: []Kind{Fenced}, Sizes: []Size{{3, 2}, {3, 3}, {5, 3}, {5, 4}},
		Promises: Promises{Tokens: true, Numbered: true},
		Except:   aQuorum, NoTransfer: true,
		build: func(stores []any, s Setup) (locker.Locker, error) {
			nodes, err := as[backends.FencedStore](stores)
			if err != nil {
				return nil, err
			}
			return redlock.NewFenced(nodes, s.options()...)
		},
	},
	{
		Name: "redlock-rwlock", Takes: []Kind{Ordered}, Sizes: []Size{{3, 2}, {5, 4}},
		Promises: Promises{Tokens: true, Shared: true, RW: true, HoldsInOrder: true},
		Left: map[Reader]string{
			Wire: "it sends the commands of rwlock", Laboratory: "its faults meet it as they meet redlock and rwlock",
			Contract: "strategies/redlock tests it",
		},
		build: quorum(readersOrWriters),
	},
	{
		Name: "legacy-expire", Config: []string{"legacy-expire"}, Takes: []Kind{Legacy},
		Promises: Promises{Legacy: true},
		build:    over(func(s backends.LegacyStore, _ Setup) locker.Locker { return legacy.Expire(s) }),
	},
	{
		Name: "legacy-getset", Config: []string{"legacy-getset"}, Takes: []Kind{Legacy},
		Promises: Promises{Legacy: true, Ownerless: true, SendsTimes: true, Busy: stampToCome},
		Except: []string{ // stamps may be equal, and DEL deletes the key of any holder
			"Extend after another holder took the lock matches ErrLost and leaves its lease alone",
			"Extend of a lock that another holder took matches ErrLost and ends its context",
			"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone",
			"Unlock of a lost lock with a minimum hold matches ErrLost and leaves the next holder alone",
		},
		build: over(func(s backends.LegacyStore, o Setup) locker.Locker {
			if o.Seconds {
				return legacy.GetSet(s)
			}
			return legacy.GetSet(s, legacy.InMilliseconds())
		}),
	},
	{
		Name: "legacy-setbit", Config: []string{"legacy-setbit"}, Takes: []Kind{Legacy},
		Promises: Promises{Legacy: true, Ownerless: true, Endless: true, Busy: bitOn},
		Except:   aBit,
		build:    over(func(s backends.LegacyStore, _ Setup) locker.Locker { return legacy.SetBit(s) }),
	},
	{
		Name: "legacy-getbit", Config: []string{"legacy-getbit"}, Takes: []Kind{Legacy},
		Promises: Promises{Legacy: true, Ownerless: true, Endless: true, Busy: bitOn},
		Except: slices.Concat(aBit, []string{
			"of concurrent attempts exactly one is granted",
			"concurrent holders of one key exclude each other, and no update is lost",
		}),
		Left: map[Reader]string{
			Simulation: "it is legacy-setbit, but two may hold it without a fault",
			Wire:       "it is legacy-setbit, but two may hold it without a fault",
		},
		build: over(func(s backends.LegacyStore, _ Setup) locker.Locker { return legacy.GetBit(s) }),
	},
}

func readersOrWriters(s backends.OrderedStore, o Setup) locker.Locker {
	if o.Reads {
		return rwlock.New(s).Readers()
	}
	return rwlock.New(s).Writers()
}

// over builds a strategy over one store.
func over[S any](build func(S, Setup) locker.Locker) func([]any, Setup) (locker.Locker, error) {
	return func(stores []any, s Setup) (locker.Locker, error) {
		all, err := as[S](stores)
		if err != nil {
			return nil, err
		}
		if len(all) != 1 {
			return nil, fmt.Errorf("the strategy uses one store, and got %d", len(all))
		}
		return build(all[0], s), nil
	}
}

// quorum builds a strategy for each node, and redlock over them.
func quorum[S any](node func(S, Setup) locker.Locker, opts ...redlock.Option) func([]any, Setup) (locker.Locker, error) {
	return func(stores []any, s Setup) (locker.Locker, error) {
		all, err := as[S](stores)
		if err != nil {
			return nil, err
		}
		nodes := make([]locker.Locker, len(all))
		for i, store := range all {
			if nodes[i] = node(store, s); s.Node != nil {
				nodes[i] = s.Node(nodes[i])
			}
		}
		return redlock.New(nodes, append(s.options(), opts...)...)
	}
}

func (s Setup) options() (opts []redlock.Option) {
	if s.Quorum != 0 {
		opts = append(opts, redlock.WithQuorum(s.Quorum))
	}
	if s.NodeLimit != 0 {
		opts = append(opts, redlock.WithNodeLimit(s.NodeLimit))
	}
	return opts
}

func as[S any](stores []any) ([]S, error) {
	all := make([]S, len(stores))
	for i, store := range stores {
		var ok bool
		if all[i], ok = store.(S); !ok {
			return nil, fmt.Errorf("%T is no %v", store, reflect.TypeFor[S]())
		}
	}
	return all, nil
}

func stampToCome(value string, now time.Time) bool {
	stamp, err := strconv.ParseInt(value, 10, 64)
	return err != nil || stamp > now.UnixMilli()
}

func bitOn(value string, _ time.Time) bool { return value != "" && value[0]&0x80 != 0 }

// aQuorum are the sentences that a quorum does not promise.
var aQuorum = []string{
	"a wait limit that is reached while the store hangs does not match ErrHeld, since the outcome is unknown",
	"of concurrent Releases exactly one succeeds",
	"of concurrent attempts exactly one is granted",
	"Unlock of a lock that an operator has evicted unnoticed matches ErrLost, evicted, and names the operator",
}

// aBit are the sentences that a recipe does not promise if its lock is one bit, without expiry and owner.
var aBit = []string{
	"an attempt that finds the lock held does not move the end of the holder's lease",
	"a lease lasts until its Expires, and soon after that the lock is free",
	"an extended lease lasts until its new Expires, and no longer",
	"Extend after the end of the lease matches ErrLost and does not bring it back",
	"Extend after another holder took the lock matches ErrLost and leaves its lease alone",
	"Extend after another holder took the lock does not move the end of its lease",
	"Lock gets the lock of a dead holder soon after its lease has ended, and not before",
	"when another holder has taken the lock, the context ends with ErrLost, stolen, no later than Expires",
	"Extend of a lock that another holder took matches ErrLost and ends its context",
	"Unlock after the lock was lost matches ErrLost and leaves the next holder alone",
	"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone",
	"Unlock of a lost lock with a minimum hold matches ErrLost and leaves the next holder alone",
	"after Unlock the lock is not renewed any more",
	"Do whose lock was lost matches ErrLost, even if work did not fail",
}
