package beneath

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/strategies/fair"
	"github.com/lockstep-go/lockstep/strategies/fenced"
	"github.com/lockstep-go/lockstep/strategies/legacy"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/reentrant"
	"github.com/lockstep-go/lockstep/strategies/rwlock"
	"github.com/lockstep-go/lockstep/strategies/semaphore"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// A Wrapping wraps a Locker, which must not change its behaviour. It is called once for each
// Locker.
type Wrapping func(t *testing.T, l locker.Locker) locker.Locker

// Around runs the contract of a Locker on every strategy with wrap around it, over stores in memory
// and in fake time. The nodes of a quorum are wrapped as well. It leaves out the sentences that a
// strategy does not promise.
func Around(t *testing.T, wrap Wrapping) {
	for _, s := range strategies {
		t.Run(s.strategy, func(t *testing.T) { s.run(t, Memory, true, wrap) })
	}
}

// Strategies runs the contract of a Locker on every strategy, over stores of another kind than
// [Run] has. With bubble each sentence runs in fake time, and start gives each store its own
// server. Without it quorums are left out, and the limit of the stores is [MaxTTL].
func Strategies(t *testing.T, bubble bool, start Start) {
	for _, s := range strategies {
		if s.quorum && !bubble {
			continue
		}
		t.Run(s.strategy, func(t *testing.T) {
			s.run(t, start, bubble, func(_ *testing.T, l locker.Locker) locker.Locker { return l })
		})
	}
}

// WithoutRecipes is Strategies in real time without the recipes of package legacy, for a store that has
// no plain commands.
func WithoutRecipes(t *testing.T, start Start) {
	for _, s := range strategies {
		if !s.quorum && !strings.HasPrefix(s.strategy, "legacy ") {
			t.Run(s.strategy, func(t *testing.T) {
				t.Parallel()
				s.run(t, start, false, func(_ *testing.T, l locker.Locker) locker.Locker { return l })
			})
		}
	}
}

// promised is a strategy with the sentences that it does not promise.
type promised struct {
	strategy string
	quorum   bool
	promises lockertest.Harness
	over     func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber)
}

func (s promised) run(t *testing.T, start Start, bubble bool, wrap Wrapping) {
	h := s.promises
	h.Bubble = bubble
	if !bubble {
		h.MaxTTL = MaxTTL
	}
	h.New = func(t *testing.T) (locker.Locker, lockertest.Disturber) { return s.over(t, start, wrap) }
	lockertest.Run(t, h)
}

var strategies = []promised{
	{"single", false, lockertest.Harness{}, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		l, d := plainOver(t, start)
		return wrap(t, l), d
	}},
	{"fair", false, lockertest.Harness{}, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		store, outside := start(t)
		faults := new(backendtest.Faults)
		return wrap(t, fair.New(faults.Queued(store))), Disturber{outside, faults, plainOps}
	}},
	{"fenced", false, lockertest.Harness{}, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		store, outside := start(t)
		faults := new(backendtest.Faults)
		return wrap(t, fenced.New(faults.Numbered(store))), Disturber{outside, faults, numberedOps}
	}},
	{"reentrant", false, lockertest.Harness{
		Except: []string{"a lock is held for its own owner too, if the token is new"},
	}, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		store, outside := start(t)
		faults := new(backendtest.Faults)
		return wrap(t, reentrant.New(faults.Ordered(store))), OfHolds(outside, faults)
	}},
	{"semaphore", false, lockertest.Harness{}, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		store, outside := start(t)
		faults := new(backendtest.Faults)
		return wrap(t, semaphore.New(faults.Ordered(store), 1)), OfHolds(outside, faults)
	}},
	{"writers", false, lockertest.Harness{}, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		store, outside := start(t)
		faults := new(backendtest.Faults)
		return wrap(t, rwlock.New(faults.Ordered(store)).Writers()), OfHolds(outside, faults)
	}},
	{"redlock", true, ofQuorums, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		var d nodes
		lockers := make([]locker.Locker, 3)
		for i := range lockers {
			l, node := plainOver(t, start)
			lockers[i], d.all = wrap(t, l), append(d.all, node)
		}
		return around(t, wrap, d)(redlock.New(lockers))
	}},
	{"redlock numbered", true, ofNumberedQuorums, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		var d nodes
		stores := make([]backends.FencedStore, 3)
		for i := range stores {
			store, outside := start(t)
			faults := new(backendtest.Faults)
			stores[i], d.all = faults.Fenced(store), append(d.all, Disturber{outside, faults, countedOps})
		}
		return around(t, wrap, d)(redlock.NewFenced(stores))
	}},
	old("legacy expire", legacy.Expire, false, anything),
	old("legacy getset", func(s backends.LegacyStore) locker.Locker { return legacy.GetSet(s, legacy.InMilliseconds()) }, false, stampToCome,
		// Stamps may be equal, and DEL deletes the key of any holder.
		"Extend after another holder took the lock matches ErrLost and leaves its lease alone",
		"Extend of a lock that another holder took matches ErrLost and ends its context",
		"Unlock of a lock that another holder took unnoticed matches ErrLost and leaves that holder alone",
		"Unlock of a lost lock with a minimum hold matches ErrLost and leaves the next holder alone",
	),
	old("legacy setbit", legacy.SetBit, true, firstBit, bits...),
	old("legacy getbit", legacy.GetBit, true, firstBit, append([]string{
		"of concurrent attempts exactly one is granted",
		"concurrent holders of one key exclude each other, and no update is lost",
	}, bits...)...),
}

var plainOps = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.SetNX, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
}

var numberedOps = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.SetNXNumbered, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
}

var countedOps = map[lockertest.Op]backendtest.Op{
	lockertest.Acquire: backendtest.SetNXFenced, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
}

// ofQuorums says what a quorum does not promise.
var ofQuorums = lockertest.Harness{
	Except: []string{
		"a wait limit that is reached while the store hangs does not match ErrHeld, since the outcome is unknown",
		"of concurrent Releases exactly one succeeds",
		"of concurrent attempts exactly one is granted",
		"Unlock of a lock that an operator has evicted unnoticed matches ErrLost, evicted, and names the operator",
	},
}

var ofNumberedQuorums = lockertest.Harness{Except: ofQuorums.Except, NoTransfer: true}

// around wraps a quorum that answers when all its nodes have answered.
func around(t *testing.T, wrap Wrapping, d nodes) func(locker.Locker, error) (locker.Locker, lockertest.Disturber) {
	d.waits = make(chan struct{}, 1)
	return func(l locker.Locker, err error) (locker.Locker, lockertest.Disturber) {
		if err != nil {
			t.Fatal(err)
		}
		return wrap(t, settled{l, d}), d
	}
}

// bits are the sentences that a recipe does not promise if its lock is one bit, without expiry and
// owner.
var bits = []string{
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

// anything: every value keeps others out. A stamp does so until it is past, and a bit while it is
// on.
func anything(string) bool { return true }

func stampToCome(value string) bool {
	stamp, err := strconv.ParseInt(value, 10, 64)
	return err != nil || stamp > time.Now().UnixMilli()
}

func firstBit(value string) bool { return value != "" && value[0]&0x80 != 0 }

// plainOver is strategy single.
func plainOver(t *testing.T, start Start) (locker.Locker, Disturber) {
	store, outside := start(t)
	faults := new(backendtest.Faults)
	return single.New(faults.Queued(store)), Disturber{outside, faults, plainOps}
}

// old is a legacy recipe. It is not disturbed by faults: one command serves several purposes, and a
// fault would have to know the purpose.
func old(strategy string, recipe func(backends.LegacyStore) locker.Locker, noLeft bool, holds func(value string) bool, except ...string) promised {
	return promised{strategy, false, lockertest.Harness{
		NoWatch: true, NoLeft: noLeft, NoTransfer: true,
		NoFaults: true, NoForeign: true, NoEvict: true,
		Except: append([]string{ // a second command does not compare the value
			"a second Acquire with the same token is granted, for ttl from then on",
			"two grants of the same token count once: one Release frees the lock",
		}, except...),
	}, func(t *testing.T, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
		store, outside := start(t)
		commands, ok := store.(backends.LegacyStore)
		if m, inMemory := store.(*memory.Store); inMemory {
			commands, ok = m.Legacy(), true
		}
		if !ok {
			t.Fatalf("%T has no plain commands", store)
		}
		return wrap(t, recipe(commands)), remains{Disturber{Outside: outside}, commands, holds}
	}}
}

// remains is for recipes that leave a key when nobody has the lock.
type remains struct {
	Disturber
	store backends.LegacyStore
	holds func(value string) bool
}

func (r remains) Holds(key string) bool {
	value, found, err := r.store.Get(context.Background(), key)
	return err == nil && found && r.holds(value)
}

// nodes disturbs all nodes of a quorum after all have answered: a late request would otherwise undo
// the disturbance.
type nodes struct {
	all   []Disturber
	waits chan struct{}
}

// still waits until all have answered. Only one goroutine of a bubble may wait.
func (n nodes) still() {
	select {
	case n.waits <- struct{}{}:
		synctest.Wait()
		<-n.waits
	default:
	}
}

func (n nodes) each(do func(Disturber)) {
	n.still()
	for _, d := range n.all {
		do(d)
	}
}

func (n nodes) Holds(key string) bool {
	n.still()
	return slices.ContainsFunc(n.all, func(d Disturber) bool { return d.Holds(key) })
}

func (n nodes) Delete(key string)     { n.each(func(d Disturber) { d.Delete(key) }) }
func (n nodes) Expire(key string)     { n.each(func(d Disturber) { d.Expire(key) }) }
func (n nodes) SetForeign(key string) { n.each(func(d Disturber) { d.SetForeign(key) }) }
func (n nodes) SetOther(key string)   { n.each(func(d Disturber) { d.SetOther(key) }) }
func (n nodes) Evict(key, by string)  { n.each(func(d Disturber) { d.Evict(key, by) }) }

func (n nodes) Fault(op lockertest.Op, f backendtest.Fault) {
	for _, d := range n.all {
		d.Fault(op, f)
	}
}

func (n nodes) FaultOnce(op lockertest.Op, f ...backendtest.Fault) {
	for _, d := range n.all {
		d.FaultOnce(op, f...)
	}
}

// settled answers when all nodes have answered, so that a fault for one call does not meet the
// next.
type settled struct {
	locker.Locker
	nodes nodes
}

func (s settled) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	defer s.nodes.still()
	return s.Locker.Acquire(ctx, req)
}

func (s settled) Extend(ctx context.Context, lease locker.Lease, ttl time.Duration) (locker.Lease, error) {
	defer s.nodes.still()
	return s.Locker.Extend(ctx, lease, ttl)
}

func (s settled) Release(ctx context.Context, lease locker.Lease) error {
	defer s.nodes.still()
	return s.Locker.Release(ctx, lease)
}

func (s settled) Watch(ctx context.Context, key, waiter string, wake func()) error {
	defer s.nodes.still()
	return s.Locker.Watch(ctx, key, waiter, wake)
}
