package beneath

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/backends/memory"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/table"
)

// A Wrapping wraps a Locker, which must not change its behaviour. It is called once for each
// Locker.
type Wrapping func(t *testing.T, l locker.Locker) locker.Locker

// Around runs the contract of a Locker on every strategy with wrap around it, over stores in memory
// and in fake time. The nodes of a quorum are wrapped as well. It leaves out the sentences that a
// strategy does not promise. All Clients have the options opts.
func Around(t *testing.T, wrap Wrapping, opts ...locker.ClientOption) {
	for _, r := range table.Of(table.Contract) {
		t.Run(r.Name, func(t *testing.T) {
			leaveOutMost(t, r)
			keepsContract(t, r, Memory, true, wrap, opts...)
		})
	}
}

// Strategies runs the contract of a Locker on every strategy, over stores of another kind than
// [Run] has. With bubble each sentence runs in fake time, and start gives each store its own
// server. Without it quorums are left out, and the limit of the stores is [MaxTTL].
func Strategies(t *testing.T, bubble bool, start Start) {
	for _, r := range table.Of(table.Contract) {
		if len(r.Sizes) > 0 && !bubble {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			leaveOutMost(t, r)
			keepsContract(t, r, start, bubble, unwrapped)
		})
	}
}

// WithoutRecipes is Strategies in real time without the recipes of package legacy, for a store that has
// no plain commands.
func WithoutRecipes(t *testing.T, start Start) {
	for _, r := range table.Of(table.Contract) {
		if len(r.Sizes) == 0 && !r.Legacy {
			t.Run(r.Name, func(t *testing.T) {
				leaveOutMost(t, r)
				t.Parallel()
				keepsContract(t, r, start, false, unwrapped)
			})
		}
	}
}

// ThatFit runs the contract in real time of every strategy that a store can serve which lacks some of what
// [Store] has. start gives stores like sample; h says what they do not promise.
func ThatFit(t *testing.T, h lockertest.Harness, sample any, start func(t *testing.T) (store any, outside Outside)) {
	for _, r := range table.Of(table.Contract) {
		i := slices.IndexFunc(r.Takes, func(k table.Kind) bool { return k.Has(sample) })
		if len(r.Sizes) > 0 || r.Legacy || i < 0 {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			leaveOutMost(t, r)
			t.Parallel()
			h := h
			h.Except, h.NoTransfer = slices.Concat(h.Except, r.Except), h.NoTransfer || r.NoTransfer
			h.New = func(t *testing.T) (locker.Locker, lockertest.Disturber) { return ofKind(r, r.Takes[i])(start(t)) }
			lockertest.Run(t, h)
		})
	}
}

// leaveOutMost leaves out most strategies, unless tests run in full size. It is for stores that have run a
// contract of their own, and for middleware: neither knows the strategy. What is left is one of a plain
// value, and one of several holds. The tests of the strategies themselves have all of them.
func leaveOutMost(t *testing.T, r table.Row) {
	plain, shared := table.Named("single"), table.Named("semaphore") // it panics if there is none
	if r.Name != plain.Name && r.Name != shared.Name {
		full.Only(t)
	}
}

func unwrapped(_ *testing.T, l locker.Locker) locker.Locker { return l }

func keepsContract(t *testing.T, r table.Row, start Start, bubble bool, wrap Wrapping, opts ...locker.ClientOption) {
	h := harness(r)
	h.Bubble, h.Options = bubble, opts
	if !bubble {
		h.MaxTTL = MaxTTL
	}
	h.New = func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		if len(r.Sizes) > 0 {
			return onThree(t, r, start, wrap)
		}
		store, outside := start(t)
		l, d := over(r)(store, outside)
		return wrap(t, l), d
	}
	lockertest.Run(t, h)
}

// harness says what a row does not promise.
func harness(r table.Row) lockertest.Harness {
	if !r.Legacy {
		return lockertest.Harness{Except: r.Except, NoTransfer: r.NoTransfer}
	}
	// A recipe is not disturbed by faults: one command serves several purposes, and a fault would have to
	// know the purpose.
	return lockertest.Harness{
		NoWatch: true, NoLeft: r.Endless, NoTransfer: true,
		NoFaults: true, NoForeign: true, NoEvict: true,
		Except: append([]string{ // a second command does not compare the value
			"a second Acquire with the same token is granted, for ttl from then on",
			"two grants of the same token count once: one Release frees the lock",
		}, r.Except...),
	}
}

// over makes the strategy of a row over a store, with faults in between.
func over(r table.Row) Over { return overKind(r, r.Takes[0]) }

// overKind is over for a strategy that sees a store of one kind.
func overKind(r table.Row, kind table.Kind) Over {
	return func(store Store, outside Outside) (locker.Locker, lockertest.Disturber) {
		if r.Legacy {
			commands := plainCommands(store)
			return table.Over(r, commands, table.Setup{}), remains{Disturber{Outside: outside}, commands, func(value string) bool {
				return r.Busy == nil || r.Busy(value, time.Now())
			}}
		}
		return ofKind(r, kind)(store, outside)
	}
}

// ofKind is overKind for any store of the kind.
func ofKind(r table.Row, kind table.Kind) func(store any, outside Outside) (locker.Locker, lockertest.Disturber) {
	return func(store any, outside Outside) (locker.Locker, lockertest.Disturber) {
		faults := new(backendtest.Faults)
		return table.Over(r, faulty(faults, kind, store), table.Setup{Permits: 1}), disturber(outside, faults, kind)
	}
}

func plainCommands(store Store) backends.LegacyStore {
	if m, inMemory := store.(*memory.Store); inMemory {
		return m.Legacy()
	}
	return store.(backends.LegacyStore)
}

// faulty is store as an interface of one kind, with faults.
func faulty(faults *backendtest.Faults, kind table.Kind, store any) any {
	switch kind {
	case table.Plain:
		return faults.Store(store.(backends.Store))
	case table.Queued:
		return faults.Queued(store.(backends.QueuedStore))
	case table.Numbered:
		return faults.Numbered(store.(backends.NumberedStore))
	case table.Fenced:
		return faults.Fenced(store.(backends.FencedStore))
	case table.Shared:
		return faults.Shared(store.(backends.SharedStore))
	case table.Ordered:
		return faults.Ordered(store.(backends.OrderedStore))
	}
	panic("no faults for a " + kind)
}

// disturber knows the calls of a strategy by the kind of its store.
func disturber(outside Outside, faults *backendtest.Faults, kind table.Kind) lockertest.Disturber {
	acquire := backendtest.SetNX
	switch kind {
	case table.Shared, table.Ordered:
		return OfHolds(outside, faults)
	case table.Numbered:
		acquire = backendtest.SetNXNumbered
	case table.Fenced:
		acquire = backendtest.SetNXFenced
	}
	return Disturber{outside, faults, map[lockertest.Op]backendtest.Op{
		lockertest.Acquire: acquire, lockertest.Extend: backendtest.ExpireIf, lockertest.Release: backendtest.DeleteIf,
	}}
}

// onThree is a quorum that answers when all its nodes have answered.
func onThree(t *testing.T, r table.Row, start Start, wrap Wrapping) (locker.Locker, lockertest.Disturber) {
	d := nodes{waits: make(chan struct{}, 1)}
	stores := make([]any, 3)
	for i := range stores {
		store, outside := start(t)
		faults := new(backendtest.Faults)
		stores[i], d.all = faulty(faults, r.Takes[0], store), append(d.all, disturber(outside, faults, r.Takes[0]))
	}
	l, err := table.New(r, stores, table.Setup{Node: func(l locker.Locker) locker.Locker { return wrap(t, l) }})
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, settled{l, d}), d
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
	all   []lockertest.Disturber
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

func (n nodes) each(do func(lockertest.Disturber)) {
	n.still()
	for _, d := range n.all {
		do(d)
	}
}

func (n nodes) Holds(key string) bool {
	n.still()
	return slices.ContainsFunc(n.all, func(d lockertest.Disturber) bool { return d.Holds(key) })
}

func (n nodes) Delete(key string)     { n.each(func(d lockertest.Disturber) { d.Delete(key) }) }
func (n nodes) Expire(key string)     { n.each(func(d lockertest.Disturber) { d.Expire(key) }) }
func (n nodes) SetForeign(key string) { n.each(func(d lockertest.Disturber) { d.SetForeign(key) }) }
func (n nodes) SetOther(key string)   { n.each(func(d lockertest.Disturber) { d.SetOther(key) }) }
func (n nodes) Evict(key, by string)  { n.each(func(d lockertest.Disturber) { d.Evict(key, by) }) }

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

func (s settled) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	defer s.nodes.still()
	return s.Locker.Acquire(ctx, req)
}

func (s settled) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	defer s.nodes.still()
	return s.Locker.Transfer(ctx, from, req)
}

func (s settled) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	defer s.nodes.still()
	return s.Locker.Extend(ctx, lease, ttl)
}

func (s settled) Release(ctx context.Context, lease contract.Lease) error {
	defer s.nodes.still()
	return s.Locker.Release(ctx, lease)
}

func (s settled) Watch(ctx context.Context, key, waiter string, wake func()) error {
	defer s.nodes.still()
	return s.Locker.Watch(ctx, key, waiter, wake)
}
