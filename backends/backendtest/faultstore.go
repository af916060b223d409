package backendtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-go/lockstep/backends"
)

// Faulty wraps store. While no faults are set it passes every call through.
func Faulty(store backends.Store) *FaultStore {
	return &FaultStore{
		store:    store,
		standing: make(map[Op]Fault),
		queued:   make(map[Op][]Fault),
		calls:    make(map[Op]int),
	}
}

// A FaultStore is a [backends.Store] whose calls meet the faults that a test sets. It keeps the contract as far as its
// faults do. Safe for concurrent use.
type FaultStore struct {
	store backends.Store

	mu       sync.Mutex // never held during a call or a fault
	standing map[Op]Fault
	queued   map[Op][]Fault
	calls    map[Op]int
}

var _ backends.Store = (*FaultStore)(nil)

// An Op names a method of a store.
type Op string

// All stands for every method: as an argument of Once, for the next call whichever it is.
const (
	SetNX    Op = "SetNX"
	ExpireIf Op = "ExpireIf"
	DeleteIf Op = "DeleteIf"
	Watch    Op = "Watch"
	All      Op = "all"
)

// Set gives every call of op that begins from now on that fault, until it is changed; nil means none. Calls that are
// already waiting in a fault go on waiting.
func (f *FaultStore) Set(op Op, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op == All {
		clear(f.standing)
	}
	f.standing[op] = fault
}

// Once gives the next calls of op these faults, one each in that order; nil means none. They come before what is set,
// those for op before those for All, and after any that Once has given op before.
func (f *FaultStore) Once(op Op, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued[op] = append(f.queued[op], faults...)
}

// Clear removes all faults, those of Once too. Calls that are already waiting in a fault go on waiting.
func (f *FaultStore) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.standing)
	clear(f.queued)
}

// Calls returns how many calls of op have begun, whatever became of them. One whose ctx was already done does not count,
// as it would not have been sent.
func (f *FaultStore) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op != All {
		return f.calls[op]
	}
	sum := 0
	for _, n := range f.calls {
		sum += n
	}
	return sum
}

// SetNX implements [backends.Store].
func (f *FaultStore) SetNX(ctx context.Context, key, value string, ttl time.Duration) (backends.Result, error) {
	return perform(ctx, f, SetNX, func(ctx context.Context) (backends.Result, error) {
		return f.store.SetNX(ctx, key, value, ttl)
	})
}

// ExpireIf implements [backends.Store].
func (f *FaultStore) ExpireIf(ctx context.Context, key, value string, ttl time.Duration) (bool, error) {
	return perform(ctx, f, ExpireIf, func(ctx context.Context) (bool, error) {
		return f.store.ExpireIf(ctx, key, value, ttl)
	})
}

// DeleteIf implements [backends.Store].
func (f *FaultStore) DeleteIf(ctx context.Context, key, value string) (bool, error) {
	return perform(ctx, f, DeleteIf, func(ctx context.Context) (bool, error) {
		return f.store.DeleteIf(ctx, key, value)
	})
}

// Watch implements [backends.Store]. Faults apply to the registration, not to the wakes.
func (f *FaultStore) Watch(ctx context.Context, key string, wake func()) error {
	watching := ctx // a fault that outlives its caller's ctx must not make a watch that never ends
	_, err := perform(ctx, f, Watch, func(context.Context) (struct{}, error) {
		return struct{}{}, f.store.Watch(watching, key, wake)
	})
	return err
}

// perform makes one call, through the fault that is due. The answer is kept where a fault may write it after the
// caller has gone on.
func perform[A any](ctx context.Context, f *FaultStore, op Op, call func(context.Context) (A, error)) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err
	}
	fault := f.next(op)
	if fault == nil {
		return call(ctx)
	}
	var answer atomic.Pointer[A]
	err := fault(ctx, func(ctx context.Context) error {
		a, err := call(ctx)
		answer.Store(&a)
		return err
	})
	if a := answer.Load(); err == nil && a != nil {
		return *a, nil
	}
	return none, err
}

// next counts a call of op and returns its fault.
func (f *FaultStore) next(op Op) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	for _, of := range []Op{op, All} {
		if q := f.queued[of]; len(q) > 0 {
			f.queued[of] = q[1:]
			return q[0]
		}
	}
	if fault, set := f.standing[op]; set {
		return fault
	}
	return f.standing[All]
}
