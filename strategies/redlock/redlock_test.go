package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
	"github.com/lockstep-go/lockstep/proof/full"
	"github.com/lockstep-go/lockstep/proof/race"
	"github.com/lockstep-go/lockstep/strategies/redlock"
	"github.com/lockstep-go/lockstep/strategies/single"
)

// quorums are the shapes that the contract runs on.
var quorums = []struct{ n, w int }{{3, 2}, {5, 3}, {5, 4}}

// TestContractInFakeTime runs on memory, for one fenced quorum only, and on the embedded server for one
// plain quorum. With LOCKSTEP_TORTURE=1 it runs for all quorums.
func TestContractInFakeTime(t *testing.T) {
	for _, q := range quorums {
		for name, start := range map[string]beneath.Start{"memory": beneath.Memory, "embedded": beneath.Embedded} {
			for kind, build := range kinds {
				few, one := name == "embedded" || kind == "fenced", q.w == 3 && (name == "memory" || kind == "plain")
				if few && !one && !full.Size() {
					continue // these take long
				}
				t.Run(fmt.Sprintf("%s %d of %d, %s", kind, q.w, q.n, name), func(t *testing.T) {
					if name == "embedded" {
						race.LeaveOut(t)
					}
					t.Parallel()
					h := lockertest.Harness{Bubble: true, New: over(start, q.n, q.w, build, true), Except: except}
					h.NoTransfer = kind == "fenced"
					lockertest.Run(t, h)
				})
			}
		}
	}
}

// except are the sentences that a quorum does not promise.
var except = []string{
	// The limit for a node comes before the wait limit, and the error says so.
	"a wait limit that is reached while the store hangs does not match ErrHeld, since the outcome is unknown",
	// At most one succeeds. If each of several finds the lease on some nodes, none finds it on a
	// quorum.
	"of concurrent Releases exactly one succeeds",
	// At most one, for the same reason. The wait of a Client has jitter, so one succeeds soon.
	"of concurrent attempts exactly one is granted",
	// A release asks nodes too that never granted the lease, so it looks for no cause.
	"Unlock of a lock that an operator has evicted unnoticed matches ErrLost, evicted, and names the operator",
}

func TestContractWithALongNodeLimitInFakeTime(t *testing.T) {
	patient := func(stores []backends.FencedStore, opts ...redlock.Option) (locker.Locker, error) {
		return plain(stores, append(opts, redlock.WithNodeLimit(time.Hour))...)
	}
	lockertest.Run(t, lockertest.Harness{Bubble: true, New: over(beneath.Memory, 5, 3, patient, true), Except: except[1:]})
}

// TestContractOnMemory runs in real time what TestContractInFakeTime runs in fake time.
func TestContractOnMemory(t *testing.T) {
	full.Only(t)
	for _, q := range quorums {
		t.Run(fmt.Sprintf("%d of %d", q.w, q.n), func(t *testing.T) {
			t.Parallel()
			lockertest.Run(t, behind(beneath.LongMemory, q.n, q.w, plain))
		})
	}
}

// behind returns the harness in real time.
func behind(start beneath.Start, n, w int, build build) lockertest.Harness {
	return lockertest.Harness{
		Behind: true, MaxTTL: beneath.MaxTTL, New: over(start, n, w, build, false),
		Except: except,
	}
}

// build makes a quorum of stores.
type build func(stores []backends.FencedStore, opts ...redlock.Option) (locker.Locker, error)

var kinds = map[string]build{"plain": plain, "fenced": redlock.NewFenced}

func plain(stores []backends.FencedStore, opts ...redlock.Option) (locker.Locker, error) {
	nodes := make([]locker.Locker, len(stores))
	for i, s := range stores {
		nodes[i] = single.New(s)
	}
	return redlock.New(nodes, opts...)
}

// over puts faults between the quorum and each of its n stores.
func over(start beneath.Start, n, w int, build build, bubble bool) func(t *testing.T) (locker.Locker, lockertest.Disturber) {
	return func(t *testing.T) (locker.Locker, lockertest.Disturber) {
		d := &disturber{bubble: bubble, waits: make(chan struct{}, 1), sent: map[string]int{}}
		d.heard.L = &d.mu
		stores := make([]backends.FencedStore, n)
		for i := range stores {
			store, outside := start(t)
			faults := new(backendtest.Faults)
			d.nodes = append(d.nodes, beneath.Disturber{Outside: outside, Faults: faults})
			stores[i] = counted{faults.Fenced(store), d}
		}
		l, err := build(stores, redlock.WithQuorum(w))
		if err != nil {
			t.Fatal(err)
		}
		return granted{l, d}, d
	}
}

// disturber disturbs all nodes. First it waits for the nodes that a quorum was granted without:
// their late requests would otherwise undo the disturbance.
type disturber struct {
	nodes  []beneath.Disturber
	bubble bool
	waits  chan struct{}

	mu    sync.Mutex
	heard sync.Cond
	sent  map[string]int // by token: requests not yet at their node; negative or 0 until the attempt is decided
}

func (d *disturber) each(do func(beneath.Disturber)) {
	if d.bubble {
		d.still()
	} else {
		d.settle()
	}
	for _, n := range d.nodes {
		do(n)
	}
}

// still waits in a bubble until all nodes have answered, so that a fault meant for one call of each
// node does not hit the next call. Only one goroutine of a bubble may call it.
func (d *disturber) still() {
	if !d.bubble {
		return
	}
	select {
	case d.waits <- struct{}{}:
		synctest.Wait()
		<-d.waits
	default:
	}
}

// settle waits, but not for ever: a request may hang in a fault, or was never sent. It does not wait
// twice for the same: a sentence with hundreds of attempts deletes a key of each.
func (d *disturber) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	late := false
	timer := time.AfterFunc(2*time.Second, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		late = true
		d.heard.Broadcast()
	})
	defer timer.Stop()
	for !late && slices.ContainsFunc(slices.Collect(maps.Values(d.sent)), func(n int) bool { return n > 0 }) {
		d.heard.Wait()
	}
	if late {
		clear(d.sent)
	}
}

func TestADisturbanceWaitsOnceForARequestThatDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disturber{sent: map[string]int{"a": 1, "b": 5}}
		d.heard.L = &d.mu
		began := time.Now()
		for range 100 {
			d.settle()
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("100 disturbances waited for %v; want 2s in all", took)
		}
		d.count("c", 1)
		go func() {
			time.Sleep(time.Second)
			d.count("c", -1)
		}()
		began = time.Now()
		if d.settle(); time.Since(began) != time.Second {
			t.Errorf("a request that comes after a second was waited for %v", time.Since(began))
		}
	})
}

func (d *disturber) count(token string, by int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent[token] += by
	d.heard.Broadcast()
}

// granted counts the requests of each attempt that is decided.
type granted struct {
	locker.Locker
	d *disturber
}

func (g granted) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	lease, err := g.Locker.Acquire(ctx, req)
	return g.counted(req, lease, err)
}

func (g granted) Transfer(ctx context.Context, from string, req contract.Request) (contract.Lease, error) {
	lease, err := g.Locker.Transfer(ctx, from, req)
	return g.counted(req, lease, err)
}

func (g granted) counted(req contract.Request, lease contract.Lease, err error) (contract.Lease, error) {
	if votes := (*redlock.QuorumError)(nil); err == nil || errors.As(err, &votes) {
		g.d.count(req.Token, len(g.d.nodes))
	}
	g.d.still()
	return lease, err
}

func (g granted) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	defer g.d.still()
	return g.Locker.Extend(ctx, lease, ttl)
}

func (g granted) Release(ctx context.Context, lease contract.Lease) error {
	defer g.d.still()
	return g.Locker.Release(ctx, lease)
}

func (g granted) Watch(ctx context.Context, key, waiter string, wake func()) error {
	defer g.d.still()
	return g.Locker.Watch(ctx, key, waiter, wake)
}

type counted struct {
	backends.FencedStore
	d *disturber
}

func (c counted) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	defer c.d.count(value, -1)
	return c.FencedStore.SetNX(ctx, key, value, ttl)
}

func (c counted) SetNXFenced(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	defer c.d.count(value, -1)
	return c.FencedStore.SetNXFenced(ctx, key, value, ttl)
}

func (c counted) Transfer(ctx context.Context, key, from, value string, ttl time.Duration, numbered bool) (backends.Result, error) {
	defer c.d.count(value, -1)
	return c.FencedStore.(backends.TransferStore).Transfer(ctx, key, from, value, ttl, numbered)
}

func (c counted) Inspect(ctx context.Context, key string) (backends.State, error) {
	return c.FencedStore.(backends.Inspector).Inspect(ctx, key)
}

// Holds does not settle: in real time it looks at once.
func (d *disturber) Holds(key string) bool {
	d.still()
	return slices.ContainsFunc(d.nodes, func(n beneath.Disturber) bool { return n.Holds(key) })
}

func (d *disturber) Delete(key string)     { d.each(func(n beneath.Disturber) { n.Delete(key) }) }
func (d *disturber) Expire(key string)     { d.each(func(n beneath.Disturber) { n.Expire(key) }) }
func (d *disturber) SetForeign(key string) { d.each(func(n beneath.Disturber) { n.SetForeign(key) }) }
func (d *disturber) SetOther(key string)   { d.each(func(n beneath.Disturber) { n.SetOther(key) }) }
func (d *disturber) Evict(key, by string)  { d.each(func(n beneath.Disturber) { n.Evict(key, by) }) }

func (d *disturber) Fault(op lockertest.Op, f backendtest.Fault) {
	for _, n := range d.nodes {
		for _, o := range ops[op] {
			n.Faults.Set(o, f)
		}
	}
}

func (d *disturber) FaultOnce(op lockertest.Op, faults ...backendtest.Fault) {
	for _, n := range d.nodes {
		for _, o := range ops[op] {
			n.Faults.Once(o, faults...)
		}
	}
}

var ops = map[lockertest.Op][]backendtest.Op{
	lockertest.Acquire: {backendtest.SetNX, backendtest.SetNXFenced},
	lockertest.Extend:  {backendtest.ExpireIf},
	lockertest.Release: {backendtest.DeleteIf},
	lockertest.Watch:   {backendtest.Watch},
	lockertest.All:     {backendtest.All},
}
