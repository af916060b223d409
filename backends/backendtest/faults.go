package backendtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A Fault decides the outcome of one call to a store. execute passes the call to the store. A fault
// may call it once, or not at all. If the fault returns nil, the caller gets the answer of the
// store; otherwise it gets that error and nothing else.
//
// A fault never sees a call whose ctx is already done: such a call returns the error of its ctx, as
// in every store. Faults wait in ways that let the time of a testing/synctest bubble go on.
type Fault func(ctx context.Context, execute func(context.Context) error) error

// ErrInjected is matched by the errors that faults make up. The error of a ctx is returned as it
// is.
var ErrInjected = errors.New("injected fault")

// Fail loses the request: the store does not execute it. The error does not say so, so the caller
// does not know the outcome.
func Fail(context.Context, func(context.Context) error) error { return ErrInjected }

// Permanent answers like a store that denies permission: nothing is executed, and the error has a
// method Permanent that returns true.
func Permanent(context.Context, func(context.Context) error) error { return permanent{ErrInjected} }

// Stale is Fail on a connection that had ended while it was idle: the error has a method Stale that
// returns true.
func Stale(context.Context, func(context.Context) error) error { return stale{ErrInjected} }

// LoseStale executes the call, although its connection seemed to have ended while it was idle.
func LoseStale(ctx context.Context, execute func(context.Context) error) error {
	_ = execute(ctx)
	return stale{ErrInjected}
}

type stale struct{ error }

func (stale) Stale() bool     { return true }
func (s stale) Unwrap() error { return s.error }

type permanent struct{ error }

func (permanent) Permanent() bool { return true }
func (p permanent) Unwrap() error { return p.error }

// Hang loses the request and answers when ctx is done, with its error.
func Hang(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// LoseReply executes the call, and returns an error whatever the answer was.
func LoseReply(ctx context.Context, execute func(context.Context) error) error {
	_ = execute(ctx)
	return ErrInjected
}

// LoseReplyHang executes the call, and answers when ctx is done, with its error.
func LoseReplyHang(ctx context.Context, execute func(context.Context) error) error {
	_ = execute(ctx)
	<-ctx.Done()
	return ctx.Err()
}

// Late executes the call after d, then answers. It ignores the end of ctx, like a client library
// that knows only timeouts of its own. But a Watch whose ctx has ended meanwhile does not begin.
func Late(d time.Duration) Fault {
	return func(ctx context.Context, execute func(context.Context) error) error {
		time.Sleep(d)
		return execute(context.WithoutCancel(ctx))
	}
}

// LateReply executes the call, and answers after d. It ignores the end of ctx.
func LateReply(d time.Duration) Fault {
	return func(ctx context.Context, execute func(context.Context) error) error {
		err := execute(ctx)
		time.Sleep(d)
		return err
	}
}

// Stall waits until release is closed, then applies the fault next; nil means none. It ignores the
// end of ctx, and gives next a ctx without an end. So [Hang] after it never returns.
func Stall(release <-chan struct{}, next Fault) Fault {
	return func(ctx context.Context, execute func(context.Context) error) error {
		<-release
		ctx = context.WithoutCancel(ctx)
		if next == nil {
			return execute(ctx)
		}
		return next(ctx, execute)
	}
}

// Ghost returns an error at once, but the request is under way: the store executes it after d. A
// goroutine waits for that, so a testing/synctest bubble must last longer.
func Ghost(d time.Duration) Fault {
	late := Late(d)
	return func(ctx context.Context, execute func(context.Context) error) error {
		go func() { _ = late(ctx, execute) }()
		return ErrInjected
	}
}

// Faults wraps stores, and applies to their calls the faults that a test sets:
//
//	faults := new(backendtest.Faults)
//	l := single.New(faults.Store(store))
//	faults.Once(backendtest.ExpireIf, backendtest.Fail)
//
// There is a method for each interface whose calls take or renew locks. The wrapper has that interface
// and nothing else that the store has. While no fault is set, it passes every call to the store.
// Several stores may share one Faults. The zero value is ready for use. Safe for concurrent use.
type Faults struct {
	mu       sync.Mutex // never held during a call or a fault
	standing map[Op]Fault
	queued   map[Op][]Fault
	calls    map[Op]int
}

// An Op names a method of a store.
type Op string

// All stands for every method. As an argument of Once it means the next call, whichever it is.
const All Op = "all"

// The methods, by their names.
const (
	SetNX    Op = "SetNX" // SetNXQueued as well: a strategy uses the one or the other
	ExpireIf Op = "ExpireIf"
	DeleteIf Op = "DeleteIf"
	Watch    Op = "Watch" // WatchQueued as well
	Inspect  Op = "Inspect"

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

// Set applies fault to every call of op that begins from now on; nil means none. A call that is
// already in a fault stays in it. Set of All replaces what is set for each method.
func (f *Faults) Set(op Op, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.standing == nil || op == All {
		f.standing = make(map[Op]Fault)
	}
	f.standing[op] = fault
}

// Once applies faults to the next calls of op, one to each, in this order; nil means none. They
// come before the fault that Set has set, after those of earlier calls of Once for op, and before
// those of Once for All.
func (f *Faults) Once(op Op, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queued == nil {
		f.queued = make(map[Op][]Fault)
	}
	f.queued[op] = append(f.queued[op], faults...)
}

// Clear removes all faults, those of Once too. A call that is already in a fault stays in it.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.standing, f.queued = nil, nil
}

// Calls returns how many calls of op have begun, whatever their outcome. A call whose ctx was
// already done does not count, since no store would have sent it.
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

// perform makes one call, through the fault that is due. The answer is atomic, because a fault may
// write it after the caller has returned.
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
	if f.calls == nil {
		f.calls = make(map[Op]int)
	}
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
