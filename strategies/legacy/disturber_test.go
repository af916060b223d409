package legacy_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/backends"
	"github.com/lockstep-go/lockstep/backends/backendtest"
	"github.com/lockstep-go/lockstep/locker"
	"github.com/lockstep-go/lockstep/locker/contract"
	"github.com/lockstep-go/lockstep/locker/lockertest"
	"github.com/lockstep-go/lockstep/proof/beneath"
)

// disturbed makes a Locker of r over store with faults in between. The recipes use the same
// commands for different purposes, so the operation of the Locker selects the fault.
func (r recipe) disturbed(store beneath.Store, outside beneath.Outside) (locker.Locker, lockertest.Disturber) {
	d := &disturber{
		Outside: outside, store: plain(store), recipe: r,
		standing: map[lockertest.Op]backendtest.Fault{}, queued: map[lockertest.Op][]backendtest.Fault{},
	}
	faults := new(backendtest.Faults)
	faults.Set(backendtest.All, d.meet(""))
	for _, op := range []backendtest.Op{backendtest.Delete, backendtest.TxDeleteIf} { // a cleanup keeps the values of Acquire's ctx
		faults.Set(op, d.meet(lockertest.Release))
	}
	return marked{r.new(faults.Legacy(d.store))}, d
}

// marked puts the operation of the Locker into the ctx.
type marked struct{ locker.Locker }

type opKey struct{}

func mark(ctx context.Context, op lockertest.Op) context.Context {
	return context.WithValue(ctx, opKey{}, op)
}

func (m marked) Acquire(ctx context.Context, req contract.Request) (contract.Lease, error) {
	return m.Locker.Acquire(mark(ctx, lockertest.Acquire), req)
}

func (m marked) Extend(ctx context.Context, lease contract.Lease, ttl time.Duration) (contract.Lease, error) {
	return m.Locker.Extend(mark(ctx, lockertest.Extend), lease, ttl)
}

func (m marked) Release(ctx context.Context, lease contract.Lease) error {
	return m.Locker.Release(mark(ctx, lockertest.Release), lease)
}

type disturber struct {
	beneath.Outside
	store  backends.LegacyStore // without faults
	recipe recipe

	mu       sync.Mutex
	standing map[lockertest.Op]backendtest.Fault
	queued   map[lockertest.Op][]backendtest.Fault
}

// Holds reports whether the recipe would find the lock held. A stamp that is past stays under the
// key, and so does a bit that is off.
func (d *disturber) Holds(key string) bool {
	value, found, err := d.store.Get(context.Background(), key)
	if errors.Is(err, backends.ErrWrongType) || err == nil && value == "" {
		return d.Outside.Holds(key)
	}
	return err != nil || found && d.recipe.holds(value)
}

func (d *disturber) Fault(op lockertest.Op, f backendtest.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if op == lockertest.All {
		clear(d.standing)
	}
	d.standing[op] = f
}

func (d *disturber) FaultOnce(op lockertest.Op, faults ...backendtest.Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queued[op] = append(d.queued[op], faults...)
}

// meet returns the fault set for the call op, or for the operation in the ctx.
func (d *disturber) meet(op lockertest.Op) backendtest.Fault {
	return func(ctx context.Context, execute func(context.Context) error) error {
		op := op
		if op == "" {
			op, _ = ctx.Value(opKey{}).(lockertest.Op)
		}
		if fault := d.next(op); fault != nil {
			return fault(ctx, execute)
		}
		return execute(ctx)
	}
}

func (d *disturber) next(op lockertest.Op) backendtest.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q := d.queued[op]; len(q) > 0 {
		d.queued[op] = q[1:]
		return q[0]
	}
	if f, set := d.standing[op]; set {
		return f
	}
	return d.standing[lockertest.All]
}

// isStampToCome recognizes stamps that are not past, with perSecond units in a second, and other
// values.
func isStampToCome(perSecond int64) func(value string) bool {
	return func(value string) bool {
		stamp, err := strconv.ParseInt(value, 10, 64)
		return err != nil || stamp > time.Now().UnixMilli()*perSecond/1000
	}
}

func firstBit(value string) bool { return value[0]&0x80 != 0 }
