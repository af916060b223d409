package backendtest

import (
	"context"
	"sync"
	"sync/atomic"
)

// Faults are what the calls of a faulty store meet. Safe for concurrent use.
type Faults struct {
	mu       sync.Mutex // never held during a call or a fault
	standing map[Op]Fault
	queued   map[Op][]Fault
	calls    map[Op]int
}

func newFaults() *Faults {
	return &Faults{
		standing: make(map[Op]Fault),
		queued:   make(map[Op][]Fault),
		calls:    make(map[Op]int),
	}
}

// An Op names a method of a store.
type Op string

// All stands for every method: as an argument of Once, for the next call whichever it is.
const All Op = "all"

// The methods, by their names.
const (
	SetNX    Op = "SetNX"
	ExpireIf Op = "ExpireIf"
	DeleteIf Op = "DeleteIf"
	Watch    Op = "Watch"

	SetNXNumbered Op = "SetNXNumbered"
	SetNXFenced   Op = "SetNXFenced"
	RaiseFence    Op = "RaiseFence"

	Enter Op = "Enter"
	Renew Op = "Renew"
	Leave Op = "Leave"

	SetNXForever Op = "SetNXForever"
	Get          Op = "Get"
	GetSet       Op = "GetSet"
	Left         Op = "Left"
	Expire       Op = "Expire"
	Delete       Op = "Delete"
	TxExpireIf   Op = "TxExpireIf"
	TxDeleteIf   Op = "TxDeleteIf"
	GetBit       Op = "GetBit"
	SetBit       Op = "SetBit"
)

// Set gives every call of op that begins from now on that fault, until it is changed; nil means none. Calls that are
// already waiting in a fault go on waiting.
func (f *Faults) Set(op Op, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op == All {
		clear(f.standing)
	}
	f.standing[op] = fault
}

// Once gives the next calls of op these faults, one each in that order; nil means none. They come before what is set,
// those for op before those for All, and after any that Once has given op before.
func (f *Faults) Once(op Op, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued[op] = append(f.queued[op], faults...)
}

// Clear removes all faults, those of Once too. Calls that are already waiting in a fault go on waiting.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.standing)
	clear(f.queued)
}

// Calls returns how many calls of op have begun, whatever became of them. One whose ctx was already done does not count,
// as it would not have been sent.
func (f *Faults) Calls(op Op) int {
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

// watch registers. A fault that outlives its caller's ctx must not make a watch that never ends, so register gets that of the
// caller.
func (f *Faults) watch(ctx context.Context, register func(context.Context) error) error {
	_, err := perform(ctx, f, Watch, func(context.Context) (struct{}, error) {
		return struct{}{}, register(ctx)
	})
	return err
}

// perform makes one call, through the fault that is due. The answer is kept where a fault may write it after the
// caller has gone on.
func perform[A any](ctx context.Context, f *Faults, op Op, call func(context.Context) (A, error)) (A, error) {
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
func (f *Faults) next(op Op) Fault {
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
